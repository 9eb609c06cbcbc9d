package slurm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"forebay/internal/bb"
)

func removeIfThere(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeWhole replaces a file at once.
func writeWhole(file string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new*")
	if err != nil {
		return bb.Wrap("write", file, err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return bb.Wrap("write", file, err)
}
