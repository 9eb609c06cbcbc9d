package posix

import (
	"errors"
	"fmt"
	"syscall"

	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
)

// fullTarget names a full target in an error of a file system that has room for the file, and notes the name.
func (p *Pending) fullTarget(err error) error {
	if p.s.identity.Kind != lustre.Magic || p.dir == nil || !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	free, roomErr := p.s.opts.room(p.dir.Root)
	if roomErr != nil || free < 2*p.size {
		return err
	}
	had := p.layout
	if p.f != nil {
		had = lustre.Of(p.f) // calls of WriteAt fail together, and leave p as it is
	}
	p.s.full.Note(p.name, had)
	return (&bb.Error{
		Kind: bb.NoSpace, Op: "put", Path: p.name,
		Err: fmt.Errorf("one of the file's storage targets is full, and the file system has %d bytes free: %w", free, err),
	}).WithRemedy("none is needed at once: the next attempt requests other targets; see lfs df")
}
