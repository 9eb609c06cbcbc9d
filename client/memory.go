package client

import (
	"errors"
	"io"

	"forebay/internal/bb"
	"forebay/rdma"
	"forebay/rdma/route"
)

// RegisterMemory says that memory stays mapped where it is until what is returned is closed. What is read
// into it from other nodes (whole extents of a File that is read with ReadAt) is put there by the
// network card itself, where libfabric is used and the card wants memory to be registered for that;
// into other memory it is copied. It is registered when it is first read into, and may be
// unregistered while others need room.
//
// The memory must be mapped by the caller (mmap), who closes before unmapping it, and must not be
// of the Go heap, whose pages the runtime takes away and replaces. bb.Invalid if it overlaps with
// memory that is kept already: the one who had it has unmapped it without closing, perhaps. Close
// waits for reads that are under way, and is idempotent.
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
