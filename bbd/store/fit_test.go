package store

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

func TestFitIn(t *testing.T) {
	const m = int64(1 << 20)
	for name, c := range map[string]struct{ want, free, held, owed, log, fits int64 }{
		"room for all":                   {128 * m, 1000 * m, 0, 0, 4 * m, 128 * m},
		"to the last byte":               {59 * m, 64 * m, 0, 0, 4 * m, 59 * m},
		"a container's":                  {6000 * m, 64 * m, 0, 0, 4 * m, 51 * m},
		"no more than 64 MiB for others": {6000 * m, 1000 * m, 0, 0, 90 * m, 831 * m},
		"adopted, and all of it there":   {128 * m, 0, 128 * m, 0, 0, 128 * m},
		"adopted, and more is wanted":    {256 * m, 64 * m, 128 * m, 0, 0, 183 * m},
		"adopted, and not there":         {256 * m, 64 * m, 256 * m, 200 * m, 0, 112 * m},
		"full":                           {128 * m, 0, 0, 0, 4 * m, 0},
		"whole units":                    {128 * m, 64*m + 5, 0, 0, 4 * m, 51 * m},
	} {
		if got := fitIn(c.want, c.free, c.held, c.owed, c.log); got != c.fits {
			t.Errorf("%s: %d MiB, want %d", name, got/m, c.fits/m)
		}
	}
}

// twoRegions makes a store with a file of each of two users with regions of their own, and returns
// the paths of the regions.
func twoRegions(t *testing.T, o Options) (paths [2]string) {
	t.Helper()
	s := open(t, o)
	for i := range paths {
		w := newWriter(t, s)
		w.uid = uint32(1000 + i)
		w.commit(bb.FileID(1+i), 1, 0, 0, content(uint64(i), 100_000))
		info, _, err := s.Region(w.lease.Region)
		if err != nil {
			t.Fatal(err)
		}
		paths[i] = info.Path
	}
	if paths[0] == paths[1] {
		t.Fatal("two users have one region")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return paths
}

// Recovery meets a region that cannot be read. It sets it aside, names it, and serves the rest, at
// every start. The file stays as it is.
func TestBadRegionIsSetAside(t *testing.T) {
	c, ok := newCrowded(t, "64m")
	if !ok {
		return
	}
	o := folders(t)
	o.ShmDir, o.DiskDir, o.DiskBytes = filepath.Join(c.dir, "shm"), "", 0
	paths := twoRegions(t, o)
	// The region's reserved space is not there, as where a sparse file met a full tmpfs.
	f, err := os.OpenFile(regionfile.JournalOf(paths[0]), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, Unit, 4*Unit); err != nil {
		t.Fatal(err)
	}
	f.Close()
	c.fill()
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 2 {
		s := open(t, o)
		check(t, s, 2, 1, content(1, 100_000))
		if _, err := s.Size(1, 1); err == nil {
			t.Error("a file of the region that is set aside is there")
		}
		d := s.Damage()
		if len(d) != 1 || d[0].Path != paths[0] || !strings.Contains(d[0].What, paths[0]) || d[0].Mended {
			t.Errorf("reported %+v", d)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(paths[0]); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "set aside"); n != 2 {
		t.Errorf("named %d times in two starts:\n%s", n, log.String())
	}
}
