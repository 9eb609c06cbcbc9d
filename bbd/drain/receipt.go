package drain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/call"
	"forebay/bbd/transfer"
	"forebay/flusher/backing"
	"forebay/flusher/receipt"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/internal/xattr"
)

const receiptVersion = 1

// maxSuperseded is how many bytes of a receipt's first line are names of superseded steps, since clients read lines of
// up to 64 KiB.
const maxSuperseded = 48 << 10

// named returns as many of some steps as fit.
func named(steps []bb.SupersededStep) []bb.SupersededStep {
	size := 0
	for i := range steps {
		text, err := json.Marshal(steps[i])
		if size += len(text) + 1; err != nil || size > maxSuperseded {
			return steps[:i]
		}
	}
	return steps
}

// receiptHead is the first line of a receipt. It names the place of the receipt's files.
type receiptHead struct {
	Version int    `json:"forebay_receipt"`
	Buffer  string `json:"buffer"`
	Backing string `json:"backing"`
	// Superseded are the first of the steps that flush rules keep from the store.
	Superseded      []bb.SupersededStep `json:"superseded,omitempty"`
	SupersededTotal int                 `json:"superseded_total,omitempty"`
	// NodeLocal are the first of the FIFOs and sockets, which are never flushed.
	NodeLocal      []string `json:"node_local,omitempty"`
	NodeLocalTotal int      `json:"node_local_total,omitempty"`
}

// maxNodeLocal is how many bytes of a receipt's first line are names of FIFOs and sockets, as maxSuperseded.
const maxNodeLocal = 8 << 10

// nodeLocal notes the FIFOs and sockets of the buffer.
func (c scope) nodeLocal(ctx context.Context, h *receiptHead) error {
	size := 0
	return c.Names().ScanAll(ctx, func(e bb.Entry) error {
		if e.Type != bb.TypeFIFO && e.Type != bb.TypeSocket {
			return nil
		}
		h.NodeLocalTotal++
		if size > maxNodeLocal {
			return nil
		}
		path, err := c.Path(ctx, &e)
		if bb.KindOf(err) == bb.NotFound {
			h.NodeLocalTotal-- // removed meanwhile
			return nil
		}
		if size += 6 * len(path); err == nil && size <= maxNodeLocal { // a byte takes up to six in JSON
			h.NodeLocal = append(h.NodeLocal, path)
		}
		return err
	})
}

// writeReceipt calls write with the receipt's lines, in pieces that fit a frame.
func (c scope) writeReceipt(ctx context.Context, write func([]byte) error) error {
	old, err := c.Rules().SupersededSteps(ctx)
	if err != nil {
		return err
	}
	head := receiptHead{Version: receiptVersion, Buffer: c.name, Backing: c.Spec().Backing, Superseded: named(old), SupersededTotal: len(old)}
	if err := c.nodeLocal(ctx, &head); err != nil {
		return err
	}
	lines, err := json.Marshal(&head)
	if err != nil {
		return err
	}
	lines = append(lines, '\n')
	err = c.Names().ScanAll(ctx, func(e bb.Entry) error {
		if e.Generation == 0 || e.State() != bb.StateClean {
			return nil
		}
		path, err := c.Path(ctx, &e)
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

func receiptOf(path string, e *bb.Entry) *receipt.Receipt {
	f := &e.Flushed
	return &receipt.Receipt{
		Path: path, Size: e.Size, Checksum: e.Checksum, Codec: f.Codec, StoredSize: f.Size,
		StoredSum: f.Checksum, ETag: f.ETag, At: f.At, By: f.By, Layout: f.Layout,
		Link: e.Type == bb.TypeSymlink, NotKept: xattr.List(e.Xattrs).Unstored(),
	}
}

// Receipt returns a buffer's receipt.
func (s *Service) Receipt(ctx context.Context, r call.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := s.o.Enter(ctx, r, "receipt", m.Name)
	if err != nil {
		return nil, err
	}
	c := s.scope(b, "")
	err = c.writeReceipt(ctx, func(lines []byte) error { return r.More(&wire.Empty{}, lines) })
	if err != nil {
		return nil, bb.Wrap("receipt", c.address(""), err)
	}
	return &wire.Empty{}, nil
}

// receiptName is the name of the receipt that is kept beside the data.
const receiptName = ".forebay-receipt.jsonl"

// keepReceipt puts the receipt on the store beside the data.
func (c scope) keepReceipt(ctx context.Context) error {
	var all []byte
	if err := c.writeReceipt(ctx, func(lines []byte) error { all = append(all, lines...); return nil }); err != nil {
		return err
	}
	store, err := c.s.o.Store(ctx, c.name)
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, receiptName, backing.NewBytes(all), backing.PutOptions{})
	return err
}

// splitReceipt returns the head of a receipt and its lines. One that begins with its lines has a head of
// version 0.
func splitReceipt(receipt []byte) (head receiptHead, lines []byte, err error) {
	first, rest, _ := bytes.Cut(receipt, []byte("\n"))
	if json.Unmarshal(first, &head) != nil || head.Version == 0 {
		return receiptHead{}, receipt, nil
	}
	if head.Version > receiptVersion {
		return head, nil, bb.E(bb.Unsupported, "verify", head.Backing, fmt.Sprintf("the receipt is of version %d, this daemon reads versions up to %d", head.Version, receiptVersion)).
			WithRemedy("upgrade it")
	}
	return head, rest, nil
}

// Verify checks a store against a receipt: the one that the receipt names, or that of the request.
func (s *Service) Verify(ctx context.Context, r call.Request, m *wire.Verify) (proto.Message, error) {
	head, lines, err := splitReceipt(r.Data())
	if err != nil {
		return nil, err
	}
	url := m.Url
	if url == "" {
		url = head.Backing
	}
	store, err := s.o.Open(ctx, *r.Caller(), url, bb.Buffer{})
	if err != nil {
		return nil, bb.Wrap("verify", url, err)
	}
	defer store.Close()
	p := transfer.ProgressTo(r)
	p.Update(func(m *wire.Progress) {
		m.SupersededTotal = int64(head.SupersededTotal)
		for _, s := range head.Superseded {
			m.Superseded = append(m.Superseded, s.Step)
		}
	})
	depth := receipt.Names
	if m.Deep {
		depth = receipt.Deep
	}
	_, err = receipt.Verify(ctx, store, bytes.NewReader(lines), depth, func(f receipt.Finding) {
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
