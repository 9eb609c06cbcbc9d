package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"forebay/client"
	"forebay/cmd/bbbench/process"
	"forebay/internal/hostlimit"
)

// Writer is how a writing worker is started.
type Writer struct {
	Address string
	Buffer  string
	Bytes   int64 // of each file
	Source  int64 // bytes of memory that it is written from, over and over
}

// Serve reports once that it is ready, and then writes a file for each order until there are no
// more.
func (w Writer) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	c, err := client.Dial(ctx, client.Options{Address: w.Address, Name: "bbbench worker", RetryFor: -1})
	if err != nil {
		return err
	}
	defer c.Close()
	source, err := hostlimit.Anonymous(w.Source)
	if err != nil {
		return err
	}
	hostlimit.Fill(source.Bytes)
	err = process.Obey(in, out, func(o process.Order) error {
		return WriteFile(ctx, c.Buffer(w.Buffer), o.Path, source.Bytes, w.Bytes)
	})
	return errors.Join(err, source.Free())
}

// Args are the arguments of a worker that writes.
func (w Writer) Args() []string {
	return []string{
		"--address", w.Address, "--buffer", w.Buffer, "--bytes", fmt.Sprint(w.Bytes), "--source", fmt.Sprint(w.Source),
	}
}

// WriteFile writes a file of n bytes in steps from src, which it begins again where it ends.
func WriteFile(ctx context.Context, b *client.Buffer, path string, src []byte, n int64) error {
	f, err := b.Create(ctx, path)
	if err != nil {
		return err
	}
	defer f.Abort()
	for at := int64(0); at < n; {
		from := at % int64(len(src))
		m, err := f.Write(src[from : from+min(hostlimit.Step, n-at, int64(len(src))-from)])
		if err != nil {
			return err
		}
		at += int64(m)
	}
	return f.Close()
}
