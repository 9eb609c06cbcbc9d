// Package room computes how much a buffer holds and has free, from the daemon's status. It must never depend on
// its callers.
package room

import (
	"context"
	"encoding/json"

	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// bufferUse is the part of the daemon's status about room that statfs needs.
type bufferUse struct {
	Memory  struct{ Capacity, Free, Clean int64 } `json:"memory"`
	Buffers []struct {
		Name            string
		Capacity, Dirty int64
	} `json:"buffers"`
}

// Of returns the capacity of a buffer and the part of it that is not dirty, in bytes. A buffer without a
// limit of its own has the memory of the node.
func Of(ctx context.Context, c *client.Client, buffer string) (total, free int64, err error) {
	text, err := admin.Status(ctx, c, buffer)
	if err != nil {
		return 0, 0, err
	}
	var use bufferUse
	if err := json.Unmarshal(text, &use); err != nil {
		return 0, 0, bb.Wrap("statfs", buffer, err)
	}
	total, free = use.Memory.Capacity, use.Memory.Free+use.Memory.Clean
	for _, b := range use.Buffers {
		if b.Name == buffer && b.Capacity > 0 {
			total, free = b.Capacity, max(0, b.Capacity-b.Dirty)
		}
	}
	return total, free, nil
}

// BlockSize is the unit of statfs, and the size of reads and writes that programs are advised to use.
const BlockSize = 4096

// Statfs returns the capacity of a buffer, and the part of it that is not dirty, as statfs(2) has them.
func Statfs(ctx context.Context, c *client.Client, buffer string, out *fuse.StatfsOut) error {
	total, free, err := Of(ctx, c, buffer)
	if err != nil {
		return err
	}
	*out = fuse.StatfsOut{Bsize: BlockSize, Frsize: BlockSize, NameLen: bb.MaxName}
	out.Blocks, out.Bfree = uint64(total/BlockSize), uint64(free/BlockSize)
	out.Bavail = out.Bfree
	return nil
}
