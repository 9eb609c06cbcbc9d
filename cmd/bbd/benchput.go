package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/embedded"
	"forebay/meta/kv/plain"
)

// benchPut measures key-value puts, for bbbench: a limit for a daemon's
// namespace.
type benchPut struct {
	url      string
	dir      string
	count    int
	inFlight int
	bytes    int
}

// benchPutAnswer is its output.
type benchPutAnswer struct {
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"`
}

func newBenchPutCommand() *cobra.Command {
	b := benchPut{}
	cmd := &cobra.Command{
		Use:    "bench-put",
		Short:  "Measure key-value puts on a NATS server, with nats.go alone",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := b.run(cmd.Context())
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(answer)
		},
	}
	cmd.Flags().StringVar(&b.url, "url", "", "NATS server to put to")
	cmd.Flags().StringVar(&b.dir, "dir", "", "or: folder for a server in this process")
	cmd.Flags().IntVar(&b.count, "count", 1000, "puts")
	cmd.Flags().IntVar(&b.inFlight, "in-flight", 1, "puts at the same time")
	cmd.Flags().IntVar(&b.bytes, "bytes", 200, "of each value")
	return cmd
}

func (b *benchPut) run(ctx context.Context) (_ benchPutAnswer, err error) {
	if (b.url == "") == (b.dir == "") || b.count < 1 || b.inFlight < 1 || b.bytes < 0 || b.bytes > 1<<20 {
		return benchPutAnswer{}, bb.E(bb.Invalid, "bench-put", "", "needs --url or --dir, and counts from 1 on")
	}
	var server conn.InProcess
	if b.dir != "" {
		s, err := embedded.Start(ctx, embedded.Options{Dir: b.dir, SyncInterval: time.Second, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			return benchPutAnswer{}, err
		}
		defer s.Shutdown()
		server = s
	}
	p, err := plain.Open(ctx, b.url, server)
	if err != nil {
		return benchPutAnswer{}, err
	}
	defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx))) }()
	took, err := b.put(ctx, p)
	return benchPutAnswer{Count: b.count, Seconds: took.Seconds()}, err
}

// put puts values under different keys and returns the time for all of them. The first
// error ends it.
func (b *benchPut) put(ctx context.Context, p *plain.Bucket) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	value := make([]byte, b.bytes)
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range b.inFlight {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.count) && ctx.Err() == nil; i = next.Add(1) {
				if err := p.Put(ctx, fmt.Sprintf("e.1.%d", i), value); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began), context.Cause(ctx)
}
