package client

import (
	"errors"
	"io"

	"forebay/internal/bb"
	"forebay/rdma"
	"forebay/rdma/route"
)

// RegisterMemory declares that memory stays mapped where it is until the returned value is closed. Reads
// from other nodes into it (whole extents of a File that is read with ReadAt) are placed there by the
// network card itself, if libfabric is used and the card needs registered memory for that. Reads
// into other memory are copied. The memory is registered at the first read into it, and may be
// unregistered while others need room.
//
// The caller must have mapped the memory (mmap), and closes the registration before unmapping. It
// must not be of the Go heap, whose pages the runtime frees and replaces. If it overlaps with
// memory that is registered already, the error is bb.Invalid, since its owner may have unmapped it
// without closing. Close waits for reads in progress, and is idempotent.
func RegisterMemory(mem []byte) (io.Closer, error) {
	k, err := route.Keep(mem)
	if errors.Is(err, rdma.ErrInvalid) {
		return nil, (&bb.Error{Kind: bb.Invalid, Op: "keep", Err: err}).WithRemedy("close what is kept before its memory is unmapped")
	}
	if err != nil {
		return nil, bb.Wrap("keep", "", err)
	}
	return k, nil
}
