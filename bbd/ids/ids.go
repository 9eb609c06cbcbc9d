// Package ids has the numbers of a daemon's files and generations, which are unique for ever. They
// come from blocks that it claims in the namespace. It must never depend on the use of a number.
package ids

import (
	"context"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Blocks are where blocks of ids are claimed.
type Blocks interface {
	// Claim returns the number of a block that is this daemon's alone. A later one is higher.
	Claim(ctx context.Context) (uint64, error)
}

// Claimed are the ids of a daemon's blocks. Its methods may be called concurrently.
type Claimed struct {
	blocks Blocks
	mu     struct {
		lockorder.Mutex[lockrank.Leaf]
		block, next uint64
	}
}

// Claim claims a first block.
func Claim(ctx context.Context, from Blocks) (*Claimed, error) {
	c := &Claimed{blocks: from}
	return c, c.claim(ctx)
}

func (c *Claimed) claim(ctx context.Context) error {
	block, err := c.blocks.Claim(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.block, c.mu.next = block, block<<32|1
	return nil
}

// Next returns an id. A block holds four thousand million of them.
func (c *Claimed) Next() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.mu.next
	c.mu.next++
	return id
}

// Block returns the block that ids come from now.
func (c *Claimed) Block() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.block
}

// After returns a number for a generation that follows n, which another daemon may have chosen from a block
// that was claimed later than this one's.
func (c *Claimed) After(ctx context.Context, n bb.Generation) (bb.Generation, error) {
	id := bb.Generation(c.Next())
	if id > n {
		return id, nil
	}
	if err := c.claim(ctx); err != nil {
		return 0, err
	}
	return bb.Generation(c.Next()), nil
}
