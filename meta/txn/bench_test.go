package txn

import (
	"context"
	"fmt"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv/plain"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

const (
	benchTasks, benchParts = 100, 100 // a file of each task in each partition
	benchCallers           = 64
)

// BenchmarkJob commits the output of a job: 10,000 files of 100 tasks over 100 partitions, which
// the destination has already. It reports how long its tasks' commits take together, and the rest
// of the job's, how many messages that is to the server, and both beside as many plain puts to a
// key-value bucket of the same server in the same run.
func BenchmarkJob(b *testing.B) {
	for _, m := range []mode{modes[0], modes[3]} {
		b.Run(m.name, func(b *testing.B) {
			s := &space{mode: m, server: metatest.StartServer(b, b.TempDir())}
			ns := s.start(b)
			var messages atomic.Int64
			ns.conn.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
				messages.Add(int64(len(msgs)))
				return ns.conn.Deliver(ctx, msgs)
			})
			var puts, tasks, job time.Duration
			var sent int64
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				puts += plainPuts(b, s, benchTasks*benchParts)
				x := writeJob(b, ns, fmt.Sprint("job", i))
				messages.Store(0)
				b.StartTimer()
				begun := time.Now()
				commitTasks(b, ns, x)
				tasks += time.Since(begun)
				begun = time.Now()
				if err := commitTxn(b.Context(), ns, x.ID, nil, &plainMover{ns: ns}); err != nil {
					b.Fatal(err)
				}
				if err := foldOne(b.Context(), ns, x.ID, &plainMover{ns: ns}); err != nil {
					b.Fatal(err)
				}
				job += time.Since(begun)
				sent += messages.Load()
				b.StopTimer()
				checkJob(b, ns, x)
				b.StartTimer()
			}
			b.ReportMetric(tasks.Seconds()/float64(b.N), "s/tasks")
			b.ReportMetric(job.Seconds()/float64(b.N), "s/job")
			b.ReportMetric(float64(sent)/float64(b.N), "messages")
			b.ReportMetric((tasks+job).Seconds()/puts.Seconds(), "of-puts")
		})
	}
}

// plainPuts puts keys, with many callers, and returns how long that takes.
func plainPuts(b *testing.B, s *space, n int) time.Duration {
	p, err := plain.Open(b.Context(), "", s.server)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close(b.Context()) }()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(benchCallers)
	begun := time.Now()
	for i := range n {
		g.Go(func() error { return p.Put(ctx, fmt.Sprint("k", i), make([]byte, 160)) })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}

// writeJob begins a transaction, and writes its tasks' files.
func writeJob(b *testing.B, ns *process, name string) bb.Txn {
	b.Helper()
	d, err := ns.MkdirAll(b.Context(), name, namespace.Owner{Mode: 0o755})
	if err != nil {
		b.Fatal(err)
	}
	x, err := ns.BeginTxn(b.Context(), bb.Txn{Destination: name, Dir: d.Dir, UID: 7})
	if err != nil {
		b.Fatal(err)
	}
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(benchCallers)
	for part := range benchParts {
		g.Go(func() error {
			_, err := ns.Mkdir(ctx, d.Dir, partition(part), namespace.Owner{Mode: 0o755})
			return err
		})
	}
	for task := range benchTasks {
		g.Go(func() error {
			for part := range benchParts {
				at := path.Join(x.Path(), attemptDir, fmt.Sprint("task", task), "0", partition(part))
				dir, err := ns.MkdirAll(ctx, at, namespace.Owner{Mode: 0o755})
				if err == nil {
					f := bb.Entry{
						Parent: dir.Dir, Name: fmt.Sprintf("part-%05d.parquet", task), Type: bb.TypeFile, File: bb.FileID(1 + task*benchParts + part),
						Generation: 1, Size: 4096, Checksum: 0x1234567890abcdef, Holders: []bb.NodeID{"node-0123"}, Mode: 0o644, MTime: time.Now(),
					}
					_, err = ns.Create(ctx, f)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return x
}

func partition(n int) string { return fmt.Sprintf("date=2026-%03d", n) }

// commitTasks commits all tasks, several at a time.
func commitTasks(b *testing.B, ns *process, x bb.Txn) {
	b.Helper()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(16)
	for task := range benchTasks {
		g.Go(func() error {
			name := fmt.Sprint("task", task)
			if _, err := ns.AdoptTxn(ctx, x.ID, name, "0"); err != nil {
				return err
			}
			return ns.MergeTask(ctx, x.ID, name, "0", &plainMover{ns: ns})
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// checkJob checks that all files have their final places.
func checkJob(b *testing.B, ns *process, x bb.Txn) {
	b.Helper()
	n := 0
	err := ns.Scan(b.Context(), x.Dir, func(part bb.Entry) error {
		return ns.Scan(b.Context(), part.Dir, func(bb.Entry) error { n++; return nil })
	})
	if err != nil || n != benchTasks*benchParts {
		b.Fatalf("%d files: %v", n, err)
	}
}
