package posix

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// lustreMagic is what statfs(2) calls Lustre (LL_SUPER_MAGIC).
const lustreMagic = 0x0BD00BD0

// Layout is a row of the stripe table: how files of at least MinSize bytes are
// spread over Lustre's storage targets.
type Layout struct {
	MinSize    int64 // bytes
	Count      int   // storage targets; -1: all of them
	StripeSize int64 // bytes, a multiple of 64 KiB; 0: the file system's default
}

// DefaultLayouts returns the table for when none is configured: small files on one
// target, large ones on more, so that one file's flush is not one disk's speed.
func DefaultLayouts() []Layout {
	return []Layout{
		{MinSize: 256 << 20, Count: 4, StripeSize: 4 << 20},
		{MinSize: 4 << 30, Count: 8, StripeSize: 8 << 20},
		{MinSize: 64 << 30, Count: 32, StripeSize: 16 << 20},
	}
}

// CheckLayouts reports every fault of a table at once.
func CheckLayouts(table []Layout) []error {
	var errs []error
	for i, l := range table {
		if l.MinSize < 0 || l.Count == 0 || l.Count < -1 {
			errs = append(errs, fmt.Errorf("layout %d: size %d or stripe count %d is out of range", i, l.MinSize, l.Count))
		}
		if l.StripeSize < 0 || l.StripeSize%(64<<10) != 0 {
			errs = append(errs, fmt.Errorf("layout %d: stripe size %d is not a multiple of 64 KiB", i, l.StripeSize))
		}
	}
	return errs
}

// LayoutFor returns the row with the largest MinSize that a file of that size
// reaches, and whether there is one: without, the directory's own default holds.
func LayoutFor(table []Layout, size int64) (Layout, bool) {
	best, found := Layout{}, false
	for _, l := range table {
		if size >= l.MinSize && (!found || l.MinSize > best.MinSize) {
			best, found = l, true
		}
	}
	return best, found
}

// setstripe returns the arguments of lfs that create a file with the layout.
func (l Layout) setstripe(file string) []string {
	args := []string{"setstripe", "-c", strconv.Itoa(l.Count)}
	if l.StripeSize > 0 {
		args = append(args, "-S", strconv.FormatInt(l.StripeSize, 10))
	}
	return append(args, file)
}

// run runs a program and puts what it said into the error.
func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
