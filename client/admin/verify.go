package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// VerifyOptions are the options of a comparison of a store with a receipt.
type VerifyOptions struct {
	URL      string         // where the files lie; "": the receipt's URL
	Deep     bool           // read every byte back, and compare checksums. Otherwise compare sizes and the store's own checksums
	Progress func(Progress) // nil: none
}

// Verify checks a store against a receipt (JSON lines, as Receipt writes them).
func Verify(ctx context.Context, c *client.Client, receipt io.Reader, o VerifyOptions) (Report, error) {
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
		part, err := work(ctx, c, wire.Type_TYPE_VERIFY, &wire.Verify{Url: url, Deep: o.Deep}, lines, func(p Progress) {
			if progress != nil {
				progress(before.plus(p))
			}
		})
		total.Progress = before.plus(part.Progress)
		total.Failed = append(total.Failed, part.Failed...)
		total.Superseded = append(total.Superseded, part.Superseded...)
		total.SupersededTotal += part.SupersededTotal
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

// readLines reads as many whole lines as fit into limit bytes. Nothing means the end.
func readLines(in *bufio.Reader, limit int) ([]byte, error) {
	var lines []byte
	for {
		// The size comes before the read, so that a line that does not fit stays for the next call.
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

// lineLength is the length of the next line with its end, or 0 if there is none.
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
func Receipt(ctx context.Context, c *client.Client, buffer string, w io.Writer) error {
	if err := bb.CheckBufferName(buffer); err != nil {
		return err
	}
	err := of(c).Stream(ctx, wire.Type_TYPE_RECEIPT, &wire.BufferName{Name: buffer}, nil, func(_, data []byte) error {
		_, err := w.Write(data)
		return err
	})
	return bb.Wrap("receipt", buffer, err)
}
