// Package sharedtest has daemons that share a namespace in one process, for tests of the packages above it.
// Calls between them are encoded, and none is lost. It must never import a package of the daemon.
package sharedtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/nslog/shared"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/stream"
)

// Daemons share a namespace on a server.
type Daemons struct {
	server conn.InProcess
	ids    atomic.Uint64

	mu  sync.Mutex
	all map[bb.NodeID]*shared.Tree
}

// New starts a server for daemons.
func New(t testing.TB) *Daemons {
	return &Daemons{server: metatest.StartServer(t, t.TempDir()), all: map[bb.NodeID]*shared.Tree{}}
}

// Next returns an id.
func (d *Daemons) Next(context.Context) (uint64, error) { return d.ids.Add(1) + 1<<20, nil }

// Start returns the namespace as a new daemon has it, which does not own the log. It ends with the test.
func (d *Daemons) Start(t testing.TB, node bb.NodeID) *shared.Tree {
	t.Helper()
	log := stream.New(kvtest.Dial(t, conn.Options{InProcess: d.server}), "NS_buf")
	if err := log.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	tree := shared.New(log, d, d, shared.Options{Buffer: "buf", Node: node, Lease: 20 * time.Millisecond, CheckpointBytes: 20_000, Logger: metatest.Logger(t)})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[node] = tree
	t.Cleanup(tree.Close)
	return tree
}

// Call carries a call to a daemon.
func (d *Daemons) Call(ctx context.Context, to bb.NodeID, c *calls.Call) (*calls.Answer, error) {
	d.mu.Lock()
	tree := d.all[to]
	d.mu.Unlock()
	if tree == nil {
		return nil, errors.New("there is no such daemon")
	}
	call, err := calls.EncodeCall(c)
	if err != nil {
		return nil, err
	}
	arrived, err := calls.DecodeCall(call)
	if err != nil {
		return nil, err
	}
	answer, err := calls.EncodeAnswer(tree.Handle(ctx, arrived))
	if err != nil {
		return nil, err
	}
	return calls.DecodeAnswer(answer)
}
