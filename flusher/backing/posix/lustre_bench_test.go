package posix

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/lustretest"
)

// BenchmarkLayout makes files with a layout on the Lustre of tests: by the attribute, and by the start of a program for
// each, which does nothing but make the file. That is the least that a start of lfs takes.
func BenchmarkLayout(b *testing.B) {
	l, err := lustre.Parse("-c 2 -S 1M")
	if err != nil {
		b.Fatal(err)
	}
	for name, create := range map[string]func(file string) error{
		"attribute": func(file string) error {
			f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY|lustre.DelayCreate, 0o666)
			if err != nil {
				return err
			}
			defer f.Close()
			return l.Set(f)
		},
		"program": func(file string) error { return exec.Command("touch", file).Run() },
	} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			lustretest.Mount(b, dir, lustretest.Options{Targets: make([]lustretest.Target, 4)})
			for i := 0; b.Loop(); i++ {
				if err := create(filepath.Join(dir, strconv.Itoa(i))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
