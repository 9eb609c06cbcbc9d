package readcache

import (
	"context"

	"forebay/bbd/alloc"
	"forebay/internal/bb"
)

// SaveReaders brings back the bytes that readers of a file would need from the store's object, before it
// is replaced by a newer generation or removed (0). It stays until they close the file.
func (c *Cache) SaveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error {
	for _, v := range c.Others(file, newer) {
		if err := c.saveView(ctx, v); err != nil && c.Reads(v) {
			return err // unless the reader has closed it meanwhile, and needs nothing
		}
	}
	return nil
}

// saveView brings all of a view into memory and keeps it there. Where there is a disk tier, a
// large one goes there step by step, since it may not fit into memory at once. Else it is
// kept in one step or not at all, so that one that does not fit takes nothing from others.
func (c *Cache) saveView(ctx context.Context, v *View) error {
	snap, stats := v.snap, c.o.Store.Stats()
	step := snap.Size()
	if half := stats.Memory.Capacity / 2; step > half && stats.Disk.Capacity > 0 {
		if step > half+stats.Disk.Capacity {
			return alloc.ErrNoRoom
		}
		step = max(stats.Memory.Capacity/8, alloc.MaxExtent)
	}
	for at := int64(0); at < snap.Size(); at += step {
		pinned, _, err := v.Pin(ctx, at, step)
		if err != nil {
			return err
		}
		kept := snap.Keep(at, step) // pinned bytes are not evicted before
		pinned.Release()
		if !kept {
			return bb.E(bb.Busy, "read", c.address(v.entry.Name), "its reader has closed it")
		}
	}
	return nil
}
