package bbd

import (
	"context"
	"maps"
	"slices"
	"time"

	"forebay/internal/bb"
	"forebay/meta"
)

// lookUpBuffer takes a buffer up that another daemon has made.
func (d *Daemon) lookUpBuffer(ctx context.Context, name string) (*buffer, error) {
	unlock, err := d.buffers.changing.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	b := d.served(name)
	if b != nil {
		return b, nil
	}
	spec, err := d.meta.Buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	return d.takeUp(ctx, spec)
}

// followBuffers hears of the buffers that other daemons change and destroy; also of those that
// they have destroyed since this one took them up.
func (d *Daemon) followBuffers() {
	for d.ctx.Err() == nil {
		d.buffers.Lock()
		known := slices.Collect(maps.Keys(d.buffers.byName))
		d.buffers.Unlock()
		for _, kept := range d.aside.Buffers() {
			known = append(known, kept.Spec.Name)
		}
		err := d.meta.WatchBuffers(d.ctx, known, d.bufferChanged)
		if d.ctx.Err() == nil {
			d.log.Warn("following the buffers that others change", "err", err)
			select {
			case <-time.After(time.Second):
			case <-d.ctx.Done():
			}
		}
	}
}

func (d *Daemon) bufferChanged(now meta.BufferChange) {
	unlock, err := d.buffers.changing.Lock(d.ctx, now.Name)
	if err != nil {
		return // the daemon stops
	}
	defer unlock()
	b := d.served(now.Name)
	if b == nil {
		d.aside.Changed(now.Name, now.Buffer)
		return // taken up when somebody asks for it
	}
	known := b.current.Load()
	same := now.Buffer != nil && now.Buffer.Created.Equal(known.Created)
	if same && now.Buffer.Revision > known.Revision {
		spec := *now.Buffer
		b.current.Store(&spec)
	}
	older := now.Buffer != nil && now.Buffer.Created.Before(known.Created)
	if same || older {
		return
	}
	if now.Buffer == nil {
		// It may have been made anew under its name since.
		if _, err := d.meta.Buffer(d.ctx, now.Name); bb.KindOf(err) != bb.NotFound {
			return // the watch tells of that, too
		}
	}
	d.buffers.Lock()
	delete(d.buffers.byName, now.Name)
	d.buffers.Unlock()
	d.dropBuffer(b)
}
