package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// CreateBuffer makes a buffer and returns it as the daemon completed it. A nil Keep
// means the default patterns, an empty one none; no Existing means ExistingKeep.
// Without Shared it is refused (Exists) if its store overlaps that of another buffer.
func (c *Client) CreateBuffer(ctx context.Context, spec BufferSpec) (BufferSpec, error) {
	if err := bb.CheckBufferName(spec.Name); err != nil {
		return BufferSpec{}, err
	}
	var reply wire.Buffer
	if err := c.conn.Ask(ctx, wire.Type_TYPE_BUFFER_CREATE, newBuffer(spec), &reply); err != nil {
		return BufferSpec{}, bb.Wrap("create buffer", spec.Name, err)
	}
	return reply.AsBuffer(), nil
}

// newBuffer makes the message that asks for a buffer.
func newBuffer(spec BufferSpec) *wire.Buffer {
	spec.Existing = cmp.Or(spec.Existing, ExistingKeep) // a daemon of an older release has another default
	m := wire.FromBuffer(&spec)
	m.KeepDefault = spec.Keep == nil
	return m
}

// Buffers lists the buffers that this user may see, by name.
func (c *Client) Buffers(ctx context.Context) ([]BufferSpec, error) {
	var reply wire.Buffers
	if err := c.conn.Ask(ctx, wire.Type_TYPE_BUFFER_LIST, &wire.Empty{}, &reply); err != nil {
		return nil, bb.Wrap("list buffers", "", err)
	}
	list := make([]BufferSpec, 0, len(reply.Buffers))
	for _, m := range reply.Buffers {
		list = append(list, m.AsBuffer())
	}
	return list, nil
}

// BufferInfo describes one buffer.
func (c *Client) BufferInfo(ctx context.Context, name string) (BufferSpec, error) {
	if err := bb.CheckBufferName(name); err != nil {
		return BufferSpec{}, err
	}
	var reply wire.Buffer
	if err := c.conn.Ask(ctx, wire.Type_TYPE_BUFFER_GET, &wire.BufferName{Name: name}, &reply); err != nil {
		return BufferSpec{}, bb.Wrap("buffer", name, err)
	}
	return reply.AsBuffer(), nil
}

// Token makes a token, as text: who has it can use this buffer's files over TCP as the
// buffer's owner, until it expires. The buffer's owner and the system may make one. Keep
// it as secret as a key.
func (c *Client) Token(ctx context.Context, buffer string, lifetime time.Duration) (text string, expires time.Time, err error) {
	if err := bb.CheckBufferName(buffer); err != nil {
		return "", time.Time{}, err
	}
	var reply wire.Token
	if err := c.conn.Ask(ctx, wire.Type_TYPE_TOKEN, &wire.TokenRequest{Buffer: buffer, LifetimeNs: int64(lifetime)}, &reply); err != nil {
		return "", time.Time{}, bb.Wrap("token", buffer, err)
	}
	return wire.TokenText(reply.Token), time.Unix(0, reply.ExpiresNs), nil
}

// DestroyBuffer removes a buffer and all it holds. It fails with ErrBusy while anything in it
// is dirty; see DiscardBuffer.
func (c *Client) DestroyBuffer(ctx context.Context, name string) error {
	return c.destroyBuffer(ctx, &wire.BufferDestroy{Name: name})
}

// DiscardBuffer removes a buffer and all it holds, with the dirty bytes, which are lost.
func (c *Client) DiscardBuffer(ctx context.Context, name string) error {
	return c.destroyBuffer(ctx, &wire.BufferDestroy{Name: name, Discard: true})
}

func (c *Client) destroyBuffer(ctx context.Context, m *wire.BufferDestroy) error {
	name := m.Name
	if err := bb.CheckBufferName(name); err != nil {
		return err
	}
	c.Buffer(name).ReturnLeases() // they are none for another buffer of its name
	return bb.Wrap("destroy buffer", name, c.conn.Ask(ctx, wire.Type_TYPE_BUFFER_DESTROY, m, nil))
}

// Status returns the daemon's status as JSON, as GET /status does: of one buffer, or of all for "".
func (c *Client) Status(ctx context.Context, buffer string) (json.RawMessage, error) {
	var reply wire.StatusReply
	if err := c.conn.Ask(ctx, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: buffer}, &reply); err != nil {
		return nil, bb.Wrap("status", buffer, err)
	}
	return json.RawMessage(reply.Json), nil
}

// NodeStatus returns a node's status as JSON, asked through the daemon of this client.
// ErrUnsupported if that daemon is too old to ask another one.
func (c *Client) NodeStatus(ctx context.Context, node NodeID, buffer string) (json.RawMessage, error) {
	var reply wire.StatusReply
	if err := c.conn.Ask(ctx, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: buffer, Node: string(node)}, &reply); err != nil {
		return nil, bb.Wrap("status", string(node), err)
	}
	var of struct {
		Node NodeID `json:"node"`
	}
	if err := json.Unmarshal(reply.Json, &of); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "status", Path: string(node), Err: err}
	}
	if of.Node != node {
		return nil, bb.E(bb.Unsupported, "status", string(node), fmt.Sprintf("the daemon of node %s is too old to ask another one", of.Node)).
			WithRemedy("ask a daemon of that node, or upgrade this one")
	}
	return json.RawMessage(reply.Json), nil
}

// ClusterStatus returns the status of the daemon that is asked, as Status does, and one JSON
// object for each node of its cluster: how it stands, its own status, and what a node holds that
// does not answer. No nodes: the daemon is alone, or too old.
func (c *Client) ClusterStatus(ctx context.Context, buffer string) (own json.RawMessage, nodes []json.RawMessage, err error) {
	err = c.conn.Repeat(ctx, func() error {
		own, nodes = nil, nil
		return c.conn.Stream(ctx, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: buffer, Cluster: true}, nil, func(message, _ []byte) error {
			var m wire.StatusReply
			if err := proto.Unmarshal(message, &m); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			if len(m.Node) > 0 {
				nodes = append(nodes, m.Node)
			} else {
				own = m.Json
			}
			return nil
		})
	})
	return own, nodes, bb.Wrap("status", buffer, err)
}

// Events yields what happens to a buffer ("": to all) from now on, until ctx ends,
// the loop is left, or the connection breaks: then it yields an error and ends. A
// consumer that is too slow misses events.
func (c *Client) Events(ctx context.Context, buffer string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := c.conn.Stream(ctx, wire.Type_TYPE_SUBSCRIBE, &wire.Subscribe{Buffer: buffer}, nil, func(message, _ []byte) error {
			var (
				m wire.Event
				e Event
			)
			if err := proto.Unmarshal(message, &m); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			if len(m.Json) == 0 {
				return nil // the subscription holds from now on
			}
			if err := json.Unmarshal(m.Json, &e); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			if !yield(e, nil) {
				return errLeft
			}
			return nil
		})
		if err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, bb.Wrap("events", buffer, err))
		}
	}
}

// errLeft says that a loop over a stream was left.
var errLeft = errors.New("left")

// Drain flushes a buffer and waits until everything in it is on the backing store,
// for at most timeout (0: without limit). It fails unless all was saved; the report
// then names what was not. Progress, which may be nil, is called from time to time on
// the calling goroutine.
func (c *Client) Drain(ctx context.Context, buffer string, timeout time.Duration, progress func(Progress)) (Report, error) {
	return c.DrainBelow(ctx, buffer, "", timeout, progress)
}

// DrainBelow is Drain of the file at a path, or of all that lies below a directory when it
// begins, whatever else in the buffer is dirty; "" is all of it. ErrUnsupported if a daemon is too old.
func (c *Client) DrainBelow(ctx context.Context, buffer, path string, timeout time.Duration, progress func(Progress)) (Report, error) {
	return c.drain(ctx, &wire.Drain{Buffer: buffer, TimeoutNs: int64(timeout), Below: path}, progress)
}

// Overwrite is DrainBelow that also replaces on the store, at the path and below it, files that the
// buffer did not write: what a Report's Conflicts name. Only the buffer's owner may. A daemon that is
// too old replaces nothing, and names them again. The other way round, StageIn of such a file
// from the store has the buffer take that content.
func (c *Client) Overwrite(ctx context.Context, buffer, path string, timeout time.Duration, progress func(Progress)) (Report, error) {
	return c.drain(ctx, &wire.Drain{Buffer: buffer, TimeoutNs: int64(timeout), Below: path, Overwrite: true}, progress)
}

func (c *Client) drain(ctx context.Context, m *wire.Drain, progress func(Progress)) (Report, error) {
	const op = "drain"
	buffer, path, timeout := m.Buffer, m.Below, time.Duration(m.TimeoutNs)
	at := bb.Address{Buffer: buffer, Path: path}.String()
	clean, err := bb.CheckPath(op, buffer, path)
	if err != nil {
		return Report{}, err
	}
	if timeout < 0 {
		return Report{}, bb.E(bb.Invalid, op, at, fmt.Sprintf("the timeout %v is negative", timeout))
	}
	m.Key, m.Below = rand.Text(), clean
	r, err := c.work(ctx, wire.Type_TYPE_DRAIN, m, nil, progress)
	return r, bb.Wrap(op, at, r.complete(err))
}

// complete makes an error of a report that names what was not done.
func (r *Report) complete(err error) error {
	if err != nil {
		return err
	}
	n := max(r.FailedTotal, int64(len(r.Failed)))
	if n == 0 {
		if err := r.unsaved(); err != nil || !r.TimedOut {
			return err
		}
		return bb.E(bb.Cancelled, "", "", "the timeout passed")
	}
	if len(r.Failed) == 0 {
		return bb.E(bb.Internal, "", "", bb.Count(n, "file")+" failed")
	}
	first := r.Failed[0]
	failed := bb.E(first.Kind, "", "", bb.FailedFiles(n, first.Path, first.Reason))
	if first.Kind == bb.Lost {
		return failed.WithRemedy("write lost files again, or remove them: bbctl lost lists them")
	}
	return failed
}

// unsaved makes an error of what a drain left out on purpose: it is not on the store all the same.
func (r *Report) unsaved() error {
	if r.HeldTotal == 0 && r.OpenTotal == 0 {
		return nil
	}
	return bb.E(bb.Busy, "", "", fmt.Sprintf("all else is saved, but %s held back by a keep pattern and %s open for writing",
		bb.Count(r.HeldTotal, "name is", "names are"), bb.Count(r.OpenTotal, "file is", "files are"))).
		WithRemedy("rename or remove the former, close the latter")
}

// StageIn copies a file or a tree from a store into a buffer, without what is there
// already and equal. It fails unless all was copied.
func (c *Client) StageIn(ctx context.Context, r StageRequest, progress func(Progress)) (Report, error) {
	return c.stage(ctx, "stage-in", wire.Type_TYPE_STAGE_IN, r, progress)
}

// StageOut copies a file or a tree of a buffer to a store.
func (c *Client) StageOut(ctx context.Context, r StageRequest, progress func(Progress)) (Report, error) {
	return c.stage(ctx, "stage-out", wire.Type_TYPE_STAGE_OUT, r, progress)
}

func (c *Client) stage(ctx context.Context, op string, typ wire.Type, r StageRequest, progress func(Progress)) (Report, error) {
	path, err := bb.CheckPath(op, r.Buffer, r.Path)
	if err != nil {
		return Report{}, err
	}
	if _, err := bb.ParseBacking(r.URL); err != nil {
		return Report{}, bb.Wrap(op, r.URL, err)
	}
	if r.Parallel < 0 {
		return Report{}, bb.E(bb.Invalid, op, r.URL, fmt.Sprintf("the number of files at the same time is %d", r.Parallel))
	}
	m := &wire.Stage{Buffer: r.Buffer, Path: path, Url: r.URL, DryRun: r.DryRun, Parallel: uint32(r.Parallel), Key: rand.Text()}
	report, err := c.work(ctx, typ, m, nil, progress)
	return report, bb.Wrap(op, bb.Address{Buffer: r.Buffer, Path: path}.String(), report.complete(err))
}

// VerifyOptions say how a store is checked against a receipt.
type VerifyOptions struct {
	URL      string         // where the files lie; "": where the receipt says
	Deep     bool           // read every byte back, and compare checksums; else sizes and the store's own checksums
	Progress func(Progress) // nil: none
}

// Verify checks a store against a receipt (JSON lines, as Receipt writes them).
func (c *Client) Verify(ctx context.Context, receipt io.Reader, o VerifyOptions) (Report, error) {
	const op = "verify"
	url, progress := o.URL, o.Progress
	if url != "" {
		if _, err := bb.ParseBacking(url); err != nil {
			return Report{}, bb.Wrap(op, url, err)
		}
	}
	var total Report
	in := bufio.NewReaderSize(receipt, 64<<10)
	for {
		lines, err := readLines(in, wire.MaxData)
		if err != nil {
			return total, bb.Wrap(op, url, err)
		}
		if len(lines) == 0 {
			return total, bb.Wrap(op, url, total.complete(nil))
		}
		before := total
		part, err := c.work(ctx, wire.Type_TYPE_VERIFY, &wire.Verify{Url: url, Deep: o.Deep}, lines, func(p Progress) {
			if progress != nil {
				progress(before.plus(p))
			}
		})
		total.Progress = before.plus(part.Progress)
		total.Failed = append(total.Failed, part.Failed...)
		total.FailedTotal += max(part.FailedTotal, int64(len(part.Failed)))
		if err != nil {
			return total, bb.Wrap(op, url, err)
		}
	}
}

// plus adds the progress of one part of the work to that of the parts before.
func (r *Report) plus(p Progress) Progress {
	p.FilesTotal += r.FilesTotal
	p.FilesDone += r.FilesDone
	p.FilesSkipped += r.FilesSkipped
	p.BytesTotal += r.BytesTotal
	p.BytesDone += r.BytesDone
	p.BytesNotCopied += r.BytesNotCopied
	return p
}

// readLines reads as many whole lines as fit into limit bytes; nothing means the end.
func readLines(in *bufio.Reader, limit int) ([]byte, error) {
	var lines []byte
	for {
		// Looking before reading: a line that does not fit stays for the next call.
		n, err := lineLength(in)
		if err != nil || n == 0 {
			return lines, err
		}
		switch {
		case n > limit:
			return nil, bb.E(bb.Invalid, "receipt", "", fmt.Sprintf("a line has %d bytes, at most %d are possible", n, limit))
		case len(lines)+n > limit:
			return lines, nil
		}
		start := len(lines)
		lines = append(lines, make([]byte, n)...)
		if _, err := io.ReadFull(in, lines[start:]); err != nil {
			return nil, err
		}
	}
}

// lineLength is the length of the next line with its end; 0: there is none.
func lineLength(in *bufio.Reader) (int, error) {
	for n := 1; ; n = min(2*n, in.Size()) {
		p, err := in.Peek(n)
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			return i + 1, nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return len(p), nil
		case err != nil:
			return 0, err
		case n == in.Size():
			return 0, bb.E(bb.Invalid, "receipt", "", fmt.Sprintf("a line is longer than %d bytes", n))
		}
	}
}

// Receipt writes a buffer's receipt: one JSON line for each file that became durable.
func (c *Client) Receipt(ctx context.Context, buffer string, w io.Writer) error {
	if err := bb.CheckBufferName(buffer); err != nil {
		return err
	}
	err := c.conn.Stream(ctx, wire.Type_TYPE_RECEIPT, &wire.BufferName{Name: buffer}, nil, func(_, data []byte) error {
		_, err := w.Write(data)
		return err
	})
	return bb.Wrap("receipt", buffer, err)
}
