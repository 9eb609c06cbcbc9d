package store

import (
	"os"
	"path/filepath"

	"forebay/bbd/store/folder"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// memoryDir returns the folder of the memory tier (folder.Memory).
func memoryDir(o *Options) (dir string, mounted bool, err error) {
	size := o.MemoryBytes + o.mostLog() + o.MemoryBytes/regionfile.JournalShare + 8*Unit
	return folder.Memory(filepath.Join(o.StateDir, "mem"), size, o.Mount, o.ShmDir, o.Log)
}

// Mount mounts the tmpfs of the memory tier, where options require one, for a process that drops
// the right to mount before it calls Open. Where none can be had and none is required, it does
// nothing.
func Mount(o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.Mount == MountOff {
		return nil
	}
	if err := os.MkdirAll(o.StateDir, 0o711); err != nil {
		return bb.Wrap("open store", o.StateDir, err)
	}
	_, _, err := memoryDir(&o)
	return err
}
