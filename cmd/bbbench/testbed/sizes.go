package testbed

import (
	"fmt"
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"forebay/internal/bb"
	"forebay/internal/hostlimit"
)

// Invalid is the error of a value on the command line.
func Invalid(what, value, reason string) error {
	return bb.E(bb.Invalid, "bench", fmt.Sprintf("%s %q", what, value), reason)
}

// Sizes are the amounts to measure. All follow from the size of a file.
type Sizes struct {
	Quick  bool  `json:"quick"`
	File   int64 `json:"file"`   // bytes of the file of rows 1 to 6 and 15
	Flush  int64 `json:"flush"`  // bytes of rows 11 and 13
	S3     int64 `json:"s3"`     // bytes of rows 12 and 13
	Burst  int64 `json:"burst"`  // bytes of row 16
	Files  int   `json:"files"`  // files that are resident in row 14
	Rounds int   `json:"rounds"` // times that limit and result are measured, one after the other
	Small  int   `json:"small"`  // operations of one round of rows 6 to 10

	DurableTime time.Duration `json:"durable_time_ns"` // of each load of row 17
}

const (
	minFile = 16 << 20
	maxFile = 64 << 30
)

// FullSizes are those of a run that counts.
func FullSizes() Sizes {
	return Sizes{Files: 10_000, Rounds: 5, Small: 2000, DurableTime: 20 * time.Second}.withFile(1 << 30)
}

// QuickSizes are those of a run that shows that all rows work.
func QuickSizes() Sizes {
	return Sizes{Quick: true, Files: 500, Rounds: 2, Small: 200, DurableTime: time.Second}.withFile(64 << 20)
}

// WithFile derives the sizes from that of a file, as people write it.
func (s Sizes) WithFile(size string) (Sizes, error) {
	n, err := humanize.ParseBytes(size)
	if err != nil || n < minFile || n > maxFile {
		return s, Invalid("size", size, "is not a size from 16MiB to 64GiB")
	}
	return s.withFile(int64(n) / hostlimit.Step * hostlimit.Step), nil
}

func (s Sizes) withFile(n int64) Sizes {
	s.File, s.Flush, s.S3, s.Burst = n, 2*n, n/2, 8*n
	return s
}

// Memory returns the memory of the daemon of most rows: room for the resident files of row 14 and
// the daemon's own needs, in whole regions, and the region that root's daemon keeps free for a user
// without any (memory.shares). Without that one, the writers of row 4 wait for memory that is never
// freed.
func (s Sizes) Memory() int64 { return WholeRegions(6*s.File) + Region }

// Region is the default size of a region, in bytes.
const Region = 1 << 30

// WholeRegions rounds n up to whole regions.
func WholeRegions(n int64) int64 { return max(1, (n+Region-1)/Region) * Region }

func temporary(in string) (string, error) {
	dir, err := os.MkdirTemp(in, "forebay-bench-")
	return dir, bb.Wrap("bench", in, err)
}
