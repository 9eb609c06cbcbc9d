package bbd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/fate"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// drain flushes a buffer on all daemons, waits, and reports what could not be saved.
func (d *Daemon) drain(ctx context.Context, r *rpc.Request, m *wire.Drain) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "drain", m.Buffer)
	if err != nil {
		return nil, err
	}
	if b.Spec().Backing == "" {
		return nil, bb.E(bb.Invalid, "drain", b.address(""), "the buffer has no backing store").WithRemedy("use bbctl stage-out")
	}
	if m.Below, err = bb.CleanPath(m.Below); err != nil {
		return nil, bb.Wrap("drain", m.Below, err)
	}
	if m.Overwrite && !r.Caller().Owns(b.Spec().UID) {
		return nil, access.Denied("drain", b.address(m.Below), "replace files on this buffer's store")
	}
	of := drained{b, m.Below}
	timed := ctx // ends when the drain's time is over; ctx, when nobody waits for it any more
	if m.TimeoutNs > 0 {
		var cancel context.CancelFunc
		timed, cancel = context.WithTimeout(ctx, time.Duration(m.TimeoutNs))
		defer cancel()
	}
	if !m.Local {
		if err := of.fold(timed); err != nil {
			return nil, bb.Wrap("drain", b.address(m.Below), err)
		}
	}
	var (
		answer *wire.Progress
		left   rest
	)
	switch {
	case m.Local:
		answer, err = b.drainShare(timed, m, transfer.ProgressTo(r))
	case b.d.cluster == nil:
		answer, left, err = d.drainAlone(ctx, timed, r, m, of)
	default:
		answer, left, err = d.drainCluster(ctx, timed, r, b, m)
	}
	if ctx.Err() != nil {
		return nil, bb.Wrap("drain", b.address(m.Below), ctx.Err())
	}
	if err != nil {
		return nil, bb.Wrap("drain", b.address(m.Below), err)
	}
	flushed := transfer.Saved(answer)
	answer.TimedOut = !flushed && errors.Is(timed.Err(), context.DeadlineExceeded)
	if m.Local {
		return answer, nil
	}
	if flushed {
		if err := of.carriedOut(timed); err != nil {
			return nil, bb.Wrap("drain", b.address(m.Below), err)
		}
	}
	if err := of.addDirs(timed, answer); err != nil && (flushed || timed.Err() == nil) {
		return nil, bb.Wrap("drain", b.address(m.Below), err)
	}
	flushed = transfer.Saved(answer)
	left.addLost(answer)
	if m.Below != "" || !flushed {
		return answer, nil
	}
	if transfer.Saved(answer) {
		d.emit(bb.Event{Kind: bb.EventDrained, Buffer: b.name, Bytes: answer.BytesDone})
	}
	if b.Spec().Receipt { // also where files are lost: it proves what the store has of the others
		if err := b.keepReceipt(timed); err != nil {
			return nil, bb.Wrap("receipt", b.address(""), err)
		}
	}
	return answer, nil
}

// drainShare is this daemon's share of a drain.
func (b *buffer) drainShare(ctx context.Context, m *wire.Drain, p *transfer.Progress) (*wire.Progress, error) {
	if m.Overwrite {
		if err := b.overwrite(ctx, m.Below); err != nil {
			return nil, err
		}
	}
	return b.drainHere(ctx, m.Below, p)
}

// overwrite lets what this daemon has yet to flush at a path and below it replace what is on the
// store, whatever that is.
func (b *buffer) overwrite(ctx context.Context, below string) error {
	dirty, _, err := b.noteBelow(ctx, below)
	if err != nil {
		return err
	}
	keys := make([]flusher.Key, 0, len(dirty))
	for _, f := range dirty {
		keys = append(keys, b.key(&f.entry))
	}
	b.d.flusher.Overwrite(b.name, below, keys)
	return nil
}

// drainHere flushes what this daemon is the home of, at a path and below it, or ("") all.
func (b *buffer) drainHere(ctx context.Context, below string, p *transfer.Progress) (*wire.Progress, error) {
	if below != "" {
		return b.drainHereBelow(ctx, below, p)
	}
	if err := b.closeAbandoned(ctx); err != nil {
		return nil, err
	}
	show := func(now flusher.Progress) {
		p.Update(func(m *wire.Progress) {
			m.FilesTotal, m.FilesDone, m.BytesTotal, m.BytesDone = now.FilesTotal, now.FilesDone, now.BytesTotal, now.BytesDone
			if m.LastError = ""; now.LastError != nil {
				m.LastError = now.LastError.Error()
			}
		})
	}
	report, err := b.d.flusher.Drain(ctx, b.name, show)
	if err != nil && report.Complete() {
		return nil, err
	}
	left, mended, err := b.mendForgotten(ctx)
	if err == nil && mended { // what has an entry again is queued
		report, err = b.d.flusher.Drain(ctx, b.name, show)
		if !report.Complete() {
			err = nil
		}
	}
	if err != nil {
		// A drain whose time has ended in here names what it left, or is no success.
		if left = b.unasked(err); ctx.Err() == nil || len(left) == 0 && report.Complete() {
			return nil, err
		}
	}
	b.nameUnsaved(ctx, &report)
	answer := p.Done()
	answer.BytesDone = max(answer.BytesDone, report.FlushedBytes)
	addReport(answer, &report)
	addUnexplained(answer, left)
	return answer, nil
}

// addUnexplained adds what cannot be flushed since no entry says where it belongs.
func addUnexplained(m *wire.Progress, left []fate.Unexplained) {
	for i := range left {
		u := &left[i]
		m.FailedTotal++
		if len(m.Failed) < transfer.MaxNamed {
			m.Failed = append(m.Failed, &wire.Failure{Path: u.Name(), Kind: uint32(bb.Internal), Reason: "no entry explains these bytes: " + u.Reason, Bytes: u.Bytes})
		}
	}
}

// nameUnsaved finds the paths of files that never flew: the flusher asks for a path when a flush begins.
// It goes on after ctx has ended, since the report of a drain that ran out of time needs them most.
func (b *buffer) nameUnsaved(ctx context.Context, report *flusher.Report) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nameTime)
	defer cancel()
	for i := range report.Unsaved[:min(len(report.Unsaved), transfer.MaxNamed)] {
		u := &report.Unsaved[i]
		if u.Path != "" {
			continue
		}
		u.Path = "file " + u.Key.File.String() // of a namespace that does not answer
		if at, ok := b.dirtyAt(u.Key.File); ok {
			u.Path = at.name
			if path, err := b.pathAt(ctx, at); err == nil {
				u.Path = path
			}
		}
	}
}

// nameTime bounds the search for paths of a report.
const nameTime = 5 * time.Second

// addReport says what a drain did not save.
func addReport(m *wire.Progress, report *flusher.Report) {
	m.FailedTotal = int64(report.UnsavedCount + report.Ops)
	for _, u := range report.Unsaved {
		f := &wire.Failure{Path: u.Path, Kind: uint32(bb.Busy), Reason: "it is not queued for its flush yet", Bytes: u.Bytes}
		if u.Err != nil {
			f.Kind, f.Reason = uint32(bb.KindOf(u.Err)), u.Err.Error()
		}
		if len(m.Failed) < transfer.MaxNamed {
			m.Failed = append(m.Failed, f)
		}
	}
	if report.OpError != nil && len(m.Failed) < transfer.MaxNamed {
		m.Failed = append(m.Failed, &wire.Failure{Kind: uint32(bb.KindOf(report.OpError)), Reason: report.OpError.Error()})
	}
	m.HeldTotal, m.OpenTotal = int64(report.HeldCount), int64(report.OpenCount)
	m.Held = report.Held[:min(len(report.Held), transfer.MaxNamed)]
	m.Open = report.Open[:min(len(report.Open), transfer.MaxNamed)]
}

const receiptVersion = 1

// receiptHead is the first line of a receipt: where the files lie that it is about.
type receiptHead struct {
	Version int    `json:"forebay_receipt"`
	Buffer  string `json:"buffer"`
	Backing string `json:"backing"`
}

// writeReceipt calls write with the receipt's lines, in pieces that fit a frame.
func (b *buffer) writeReceipt(ctx context.Context, write func([]byte) error) error {
	spec := b.Spec()
	lines, err := json.Marshal(receiptHead{receiptVersion, b.name, spec.Backing})
	if err != nil {
		return err
	}
	lines = append(lines, '\n')
	err = b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if e.Type != bb.TypeFile || e.State() != bb.StateClean {
			return nil
		}
		path, err := b.pathAt(ctx, place{e.Parent, e.Name})
		if err != nil {
			return nil // removed meanwhile
		}
		if lines, err = receiptOf(path, &e).Append(lines); err != nil {
			return err
		}
		if len(lines) < wire.MaxData/2 {
			return nil
		}
		err = write(lines)
		lines = lines[:0]
		return err
	})
	if err != nil || len(lines) == 0 {
		return err
	}
	return write(lines)
}

func receiptOf(path string, e *bb.Entry) *flusher.Receipt {
	f := &e.Flushed
	return &flusher.Receipt{
		Path: path, Size: e.Size, Checksum: e.Checksum, Codec: f.Codec, StoredSize: f.Size,
		StoredSum: f.Checksum, ETag: f.ETag, At: f.At, By: f.By,
	}
}

func (d *Daemon) receipt(ctx context.Context, r *rpc.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "receipt", m.Name)
	if err != nil {
		return nil, err
	}
	err = b.writeReceipt(ctx, func(lines []byte) error { return r.More(&wire.Empty{}, lines) })
	if err != nil {
		return nil, bb.Wrap("receipt", b.address(""), err)
	}
	return &wire.Empty{}, nil
}

// receiptName is what a receipt is called that is kept beside the data.
const receiptName = ".forebay-receipt.jsonl"

// keepReceipt puts the receipt on the store beside the data.
func (b *buffer) keepReceipt(ctx context.Context) error {
	var all []byte
	if err := b.writeReceipt(ctx, func(lines []byte) error { all = append(all, lines...); return nil }); err != nil {
		return err
	}
	store, err := b.d.stores.Get(ctx, b.name)
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, receiptName, backing.NewBytes(all), backing.PutOptions{})
	return err
}

// verify checks a store against a receipt: the one that the receipt names, or that
// of the request.
func (d *Daemon) verify(ctx context.Context, r *rpc.Request, m *wire.Verify) (proto.Message, error) {
	url, lines := m.Url, r.Data()
	first, rest, _ := bytes.Cut(r.Data(), []byte("\n"))
	var head receiptHead
	if json.Unmarshal(first, &head) != nil {
		head = receiptHead{} // a receipt may begin with its lines
	}
	if head.Version > receiptVersion {
		return nil, bb.E(bb.Unsupported, "verify", head.Backing, fmt.Sprintf("the receipt is of version %d, this daemon knows %d", head.Version, receiptVersion)).
			WithRemedy("upgrade it")
	}
	if head.Version != 0 {
		if lines = rest; url == "" {
			url = head.Backing
		}
	}
	store, err := d.stores.OpenURL(ctx, *r.Caller(), url, bb.Buffer{})
	if err != nil {
		return nil, bb.Wrap("verify", url, err)
	}
	defer store.Close()
	p := transfer.ProgressTo(r)
	depth := flusher.VerifyNames
	if m.Deep {
		depth = flusher.VerifyDeep
	}
	_, err = flusher.Verify(ctx, store, bytes.NewReader(lines), depth, func(f flusher.Finding) {
		if f.Err != nil {
			p.Failed(f.Receipt.Path, f.Receipt.Size, f.Err)
		}
		p.Update(func(m *wire.Progress) {
			m.FilesTotal++
			if f.Err == nil {
				m.FilesDone++
				m.BytesDone += f.Receipt.Size
			}
		})
	})
	if err != nil {
		return nil, bb.Wrap("verify", url, err)
	}
	return p.Done(), nil
}
