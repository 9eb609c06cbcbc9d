package drain

import (
	"context"
	"fmt"

	"forebay/internal/bb"
)

// Saved returns why a buffer may not be destroyed, if so many of its files are open for writing at this daemon. It
// returns nil if all of the buffer's content is on its store, or is not to be (contract 11).
func Saved(ctx context.Context, b Buffer, open int) error {
	name := b.Spec().Name
	address := bb.Address{Buffer: name}.String()
	if open > 0 {
		return bb.E(bb.Busy, "destroy", address, bb.Count(open, "file is", "files are")+" open for writing").
			WithRemedy("close them, or give --discard")
	}
	var files, bytes, lost int64
	err := b.Rules().Unsaved(ctx, func(e *bb.Entry, _ string) error {
		if e.Lost {
			lost++
		} else {
			files, bytes = files+1, bytes+e.Size
		}
		return nil
	})
	if err != nil {
		return err
	}
	if files > 0 {
		return bb.E(bb.Busy, "destroy", address, fmt.Sprintf("not on the store yet: %s of %s", bb.Count(files, "file"), bb.Count(bytes, "byte"))).
			WithRemedy("drain it first: bbctl drain " + name + "; or give --discard to lose them")
	}
	if lost > 0 { // the buffer is all that names them
		return bb.E(bb.Lost, "destroy", address, bb.Count(lost, "file is", "files are")+" lost").
			WithRemedy("see bbctl lost " + name + ", then remove them; or give --discard")
	}
	return nil
}
