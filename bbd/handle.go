package bbd

import (
	"forebay/bbd/file"
	"forebay/bbd/forward"
	"forebay/bbd/readcache"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// handle is one open file of a session. Requests on it are carried out one after
// the other, in the order in which they were read.
type handle struct {
	d     *Daemon
	s     *rpc.Session
	id    uint64
	order rpc.Queue

	writes string // the buffer that it is opened for writing in; "": it is for reading

	// Set by the open request, before any other runs; write and relay change with a
	// commit that finds the generation superseded.
	err    error // why the open failed
	opened *wire.Open
	buf    *buffer
	path   string          // as it was opened, for messages
	tier   bb.Tier         // where the bytes of the file belong
	write  *file.File      // for writing
	relay  *forward.File   // for writing a file whose home is another node
	view   *readcache.View // for reading

	closed  bool // by the queue's requests alone
	entered bool // a change of the buffer is under way, likewise: see freeze.Gate
}

// Order has the requests on the handle.
func (h *handle) Order() *rpc.Queue { return &h.order }

// Release ends a handle that was closed, or that its session leaves open: see abandon.
func (h *handle) Release(lost bool) {
	if lost {
		h.abandon()
	}
	h.s.Give(h.d.shares.files, 1)
}
