package txn

import (
	"context"
	"errors"
	"log/slog"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/meta/namespace"
	metatxn "forebay/meta/txn"
)

// Materializer puts the output of a buffer's decided transactions in its place. All that wait for
// one transaction wait for the same run. Its methods may be called concurrently.
type Materializer struct {
	ctx   context.Context // of the runs
	tree  *metatxn.Tree
	mover metatxn.Mover
	start func(func())
	log   *slog.Logger

	mu struct {
		lockorder.Mutex[lockrank.Leaf]
		running map[bb.TxnID]*run
	}
}

type run struct {
	done chan struct{}
	err  error // once done is closed
}

// NewMaterializer returns one for a buffer's tree. Its runs, which start starts, end with ctx.
func NewMaterializer(ctx context.Context, tree *metatxn.Tree, mover metatxn.Mover, start func(func()), log *slog.Logger) *Materializer {
	m := &Materializer{ctx: ctx, tree: tree, mover: mover, start: start, log: log}
	m.mu.running = make(map[bb.TxnID]*run)
	return m
}

// Start materializes a transaction that is decided, in the background.
func (m *Materializer) Start(id bb.TxnID) { m.run(id) }

func (m *Materializer) run(id bb.TxnID) *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.mu.running[id]; r != nil {
		return r
	}
	r := &run{done: make(chan struct{})}
	m.mu.running[id] = r
	m.start(func() {
		r.err = m.Do(m.ctx, func() error { return m.tree.MaterializeTxn(m.ctx, id, m.mover) })
		if r.err != nil && m.ctx.Err() == nil {
			m.log.Warn("folding a transaction", "transaction", id, "err", r.err)
		}
		m.mu.Lock()
		delete(m.mu.running, id)
		m.mu.Unlock()
		close(r.done)
	})
	return r
}

// Wait materializes a transaction that is decided, and waits for that.
func (m *Materializer) Wait(ctx context.Context, id bb.TxnID) error {
	r := m.run(id)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Do calls do, again after each transaction that has to be materialized before.
func (m *Materializer) Do(ctx context.Context, do func() error) error {
	for {
		err := do()
		var other *namespace.Unfolded
		if !errors.As(err, &other) {
			return err
		}
		if err := m.Wait(ctx, other.ID); err != nil {
			return err
		}
	}
}
