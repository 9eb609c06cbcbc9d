package origin

import (
	"context"
	"fmt"
	"time"

	"forebay/bbd/cluster"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma"
)

// source is a range of a file as it lies at a node that has it, pinned there.
type source struct {
	w  *Owner
	of remote
	to int64 // the end of the bytes to read

	from, end int64 // of the range
	pins      []uint64
	extents   []*wire.Extent
	inline    []inlineRun
	keys      map[uint64]rdma.RemoteKey
}

// inlineRun is bytes of the file that came with the answer.
type inlineRun struct {
	from int64
	data []byte
}

// fill is of filler. A range that does not have the bytes is released, and the next one located.
func (at *source) fill(ctx context.Context, p []byte, off int64) error {
	end := off + int64(len(p))
	if off < at.from || end > at.end {
		at.release()
		if err := at.locate(ctx, off, max(end, min(off+window, at.to))); err != nil {
			return err
		}
	}
	ops, err := at.ops(p, Run{off, end})
	if err != nil || len(ops) == 0 {
		return err
	}
	if err := at.transfer(ctx, ops); err == nil || ctx.Err() != nil || at.of.session.Broken() {
		return err
	}
	// The node answers, and may merely be slow to connect. The bytes come with its answers instead.
	return at.w.ask(ctx, at.of, p, off)
}

func (at *source) transfer(ctx context.Context, ops []rdma.Op) error {
	fabric, err := at.of.session.Fabric(ctx)
	if err != nil {
		return err
	}
	if err := at.w.of.o.Nodes.Transfer(ctx, fabric, ops); err != nil {
		at.of.session.LoseFabric(fabric)
		return at.failed(cluster.TransferKind(ctx), err)
	}
	return nil
}

func (at *source) failed(kind bb.Kind, err error) error {
	return &bb.Error{Kind: kind, Op: "read", Path: at.w.of.address(at.w.entry.Name), Node: at.of.session.Node(), Err: err}
}

// locate requests the places of [from, to).
func (at *source) locate(ctx context.Context, from, to int64) error {
	at.from, at.end = from, to
	for from < to {
		var m wire.Extents
		ask := &wire.ExtentsRequest{Handle: at.of.handle, Offset: from, Length: to - from}
		data, err := at.of.session.Ask(ctx, wire.Type_TYPE_EXTENTS, ask, nil, &m)
		if err != nil {
			return err
		}
		next := from + int64(len(data))
		if len(data) > 0 {
			at.inline = append(at.inline, inlineRun{from, data})
		}
		if m.Pin != 0 {
			at.pins = append(at.pins, m.Pin)
		}
		for _, region := range m.Regions {
			key, err := rdma.DecodeRemoteKey(region.Key)
			if err != nil {
				return at.failed(bb.Internal, err)
			}
			if at.keys == nil {
				at.keys = make(map[uint64]rdma.RemoteKey)
			}
			at.keys[region.Id] = key
		}
		for _, e := range m.Extents {
			at.extents = append(at.extents, e)
			next = max(next, e.FileOffset+e.Length)
		}
		if next <= from {
			return bb.E(bb.Unavailable, "read", at.w.of.address(at.w.entry.Name), fmt.Sprintf("the owner's answer lacks byte %d", from))
		}
		from = next
	}
	return nil
}

// ops returns the operations that bring a run into dst. Bytes that came with the answer are copied.
func (at *source) ops(dst []byte, x Run) (ops []rdma.Op, err error) {
	covered := int64(0)
	for _, r := range at.inline {
		from, to := max(x.From, r.from), min(x.To, r.from+int64(len(r.data)))
		if from < to {
			covered += int64(copy(dst[from-x.From:to-x.From], r.data[from-r.from:to-r.from]))
		}
	}
	for _, e := range at.extents {
		from, to := max(x.From, e.FileOffset), min(x.To, e.FileOffset+e.Length)
		if from >= to {
			continue
		}
		local := dst[from-x.From : to-x.From]
		covered += to - from
		if e.Region == 0 {
			clear(local)
			continue
		}
		ops = append(ops, rdma.Op{Kind: rdma.OpRead, Local: local, Remote: rdma.Remote{
			Key: at.keys[e.Region], Offset: uint64(e.Offset + from - e.FileOffset),
		}})
	}
	if covered != x.Size() {
		return ops, bb.E(bb.Unavailable, "read", "", fmt.Sprintf("the owner named %d of %d bytes", covered, x.Size()))
	}
	return ops, nil
}

// unpinWithin bounds the release of a range.
const unpinWithin = 5 * time.Second

// release ends the range, and its pins.
func (at *source) release() {
	pins := at.pins
	at.from, at.end, at.pins, at.extents, at.inline = 0, 0, nil, nil, nil
	if len(pins) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), unpinWithin)
	defer cancel()
	// Pins end with the session in any case.
	_, _ = at.of.session.Ask(ctx, wire.Type_TYPE_UNPIN, &wire.Unpin{Pins: pins}, nil, nil)
}
