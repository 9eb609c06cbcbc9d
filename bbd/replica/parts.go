package replica

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
)

// A file of many extents is described by more than one message can hold. Its second copy is sent in
// parts. The bytes lie in segments that the sender leases, the second node keeps the descriptions,
// and the last part makes it commit all of them in one step. Until then it has its former content,
// and nothing if it had nothing. A part of a file does not pass for the file when its owner is lost.
const (
	// maxExtents bounds the extents of one message: 50 bytes each at most.
	maxExtents = 16 << 10
	// maxPartsExtents and maxPartsFiles bound the parts that a session keeps.
	maxPartsExtents = 2 << 20
	maxPartsFiles   = 16
)

// commitParts are the parts of one commit that have come.
type commitParts struct {
	id      uint64
	extents []store.NewExtent
}

// add returns the parts with those of a message, which must be the next.
func (p commitParts) add(m *wire.Replicate, extents []store.NewExtent) (commitParts, error) {
	if m.Before == 0 {
		p = commitParts{id: m.Parts} // the sender begins, or begins again
	}
	switch {
	case p.id != m.Parts || len(p.extents) != int(m.Before):
		return p, bb.E(bb.Invalid, "replicate", "", fmt.Sprintf("a part after extent %d came where %d had come", m.Before, len(p.extents)))
	case len(p.extents)+len(extents) > maxPartsExtents:
		return p, tooManyExtents(len(p.extents) + len(extents))
	}
	p.extents = append(p.extents, extents...)
	return p, nil
}

func tooManyExtents(n int) error {
	return bb.E(bb.Invalid, "replicate", "", fmt.Sprintf("a file of %d extents, at most %d can have a second copy", n, maxPartsExtents)).
		WithRemedy("write in larger pieces")
}

// Parts are the commits of which a session's peer has sent some. The zero value is ready. Join may be called
// concurrently.
type Parts struct {
	mu    lockorder.Mutex[lockrank.Leaf]
	files map[bb.FileID]commitParts
}

// Join keeps a part until the last one has come, and then returns all of them.
func (c *Parts) Join(file bb.FileID, m *wire.Replicate, extents []store.NewExtent) ([]store.NewExtent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.files[file].add(m, extents)
	if err != nil || !m.More {
		delete(c.files, file)
		return p.extents, err
	}
	if c.files == nil {
		c.files = make(map[bb.FileID]commitParts)
	}
	for other := range c.files {
		if len(c.files) < maxPartsFiles || c.files[file].id != 0 {
			break
		}
		delete(c.files, other) // its sender receives an error for the next part, and begins again
	}
	c.files[file] = p
	return nil, nil
}

// inParts splits a message into those that are sent, or leaves it whole if it fits. id names the
// parts.
func (b *Buffer) inParts(m *wire.Replicate, mayPart bool, id uint64) ([]*wire.Replicate, error) {
	if len(m.Extents) <= maxExtents || !mayPart && proto.Size(m) <= wire.MaxMessage {
		return []*wire.Replicate{m}, nil
	}
	if !mayPart {
		return nil, bb.E(bb.Unsupported, "replicate", b.address(""), bb.Count(len(m.Extents), "extent is", "extents are")+" more than the other daemon accepts").
			WithRemedy("upgrade it: see bbctl nodes")
	}
	if len(m.Extents) > maxPartsExtents {
		return nil, tooManyExtents(len(m.Extents))
	}
	var parts []*wire.Replicate
	for before := 0; before < len(m.Extents); before += maxExtents {
		end := min(before+maxExtents, len(m.Extents))
		parts = append(parts, &wire.Replicate{
			Buffer: m.Buffer, File: m.File, Generation: m.Generation, Whole: m.Whole, Extents: m.Extents[before:end],
			Parts: id, Before: uint32(before), More: end < len(m.Extents),
		})
	}
	return parts, nil
}
