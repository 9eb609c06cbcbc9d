package bbd

import (
	"context"

	"forebay/bbd/entries"
	"forebay/bbd/rpc"
)

// entryOptions returns what requests about entries use in all buffers.
func (d *Daemon) entryOptions() entries.Options {
	o := entries.Options{
		Enter: func(ctx context.Context, s *rpc.Session, op, name string) (*entries.Buffer, error) {
			b, err := d.bufferFor(ctx, s, op, name)
			if err != nil {
				return nil, err
			}
			return b.entries, nil
		},
		Owners: d.owners(), Store: d.store,
	}
	if d.cluster != nil {
		o.Cluster = d.cluster
	}
	return o
}

// newEntries makes what describes the entries of a buffer.
func newEntries(b *buffer) *entries.Buffer {
	return entries.NewBuffer(b.d.entryOptions(), b.name, entries.Parts{Paths: b.paths, Names: b.ns, Dirty: b.dirty, AsideDir: b.reassertion.AsideDir, MarkSteps: b.rules.MarkEntries})
}
