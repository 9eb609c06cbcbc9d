package nsbucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

// holdRemovals keeps batches of removals from beginning until the function that it returns is
// called.
func holdRemovals(ctx context.Context, ns *Namespace) (release func()) {
	held, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = ns.removals.rounds.Do(ctx, func(context.Context) (struct{}, error) {
			close(held)
			<-end
			return struct{}{}, nil
		})
	})
	<-held
	return func() { close(end); wg.Wait() }
}

// queued waits until n removals wait for a batch.
func queued(ctx context.Context, t *testing.T, ns *Namespace, n int) {
	t.Helper()
	for there := -1; there != n; retry.Pause(ctx, 1) {
		ns.removals.mu.Lock()
		there = len(ns.removals.queue)
		ns.removals.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatalf("%d removals wait, want %d", there, n)
		}
	}
}

// TestRemovalsAreGrouped: files that are removed at one time go in one change of the server, each
// with its operation. A conflict of one of them does not affect the others.
func TestRemovalsAreGrouped(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		const files = 40
		dir := mkdir(t, ns, bb.RootDir, "d")
		for i := range files {
			create(t, ns, []bb.DirID{bb.RootDir, dir.Dir}[i%2], fmt.Sprint(i))
		}
		remove := func(i int) error {
			_, err := ns.Remove(ctx, []bb.DirID{bb.RootDir, dir.Dir}[i%2], fmt.Sprint(i), namespace.RemoveOptions{StoreOp: true})
			return err
		}
		release := holdRemovals(ctx, ns)
		var wg sync.WaitGroup
		for i := range files {
			wg.Go(func() { metatest.WantKind(t, "remove", remove(i), 0) })
		}
		queued(ctx, t, ns, files)
		release()
		wg.Wait()
		batches, n := map[string]bool{}, 0
		err := ns.b.Scan(ctx, record.OpPrefix+"*", func(r *kv.Record) error {
			batches[r.By] = true
			n++
			return nil
		})
		if err != nil || n != files {
			t.Fatalf("%d operations: %v", n, err)
		}
		if len(batches) != 1 {
			t.Errorf("%d changes of the server for %d removals at one time", len(batches), files)
		}
		if got := all(t, ns); len(got) != 1 {
			t.Errorf("left %v", got)
		}
	})
}

// TestRemovalsApart: besides removable files, a batch has one that has changed, one that is removed
// twice, and one without its directory.
func TestRemovalsApart(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		good, twice := create(t, ns, bb.RootDir, "good"), create(t, ns, bb.RootDir, "twice")
		changed := create(t, ns, bb.RootDir, "changed")
		stale := changed
		changed.Size = 11
		if _, err := ns.Put(ctx, changed); err != nil {
			t.Fatal(err)
		}
		dir := mkdir(t, ns, bb.RootDir, "d")
		homeless := create(t, ns, dir.Dir, "f")
		if err := ns.RemoveAll(ctx, bb.RootDir, "d", namespace.RemoveOptions{}, nil); err != nil {
			t.Fatal(err)
		}
		release := holdRemovals(ctx, ns)
		var wg sync.WaitGroup
		for _, e := range []*bb.Entry{&stale, &homeless} {
			wg.Go(func() {
				if err := ns.removeFile(ctx, e, namespace.RemoveOptions{StoreOp: true}); !errors.Is(err, kv.ErrRevision) {
					t.Errorf("%s: %v", e.Name, err)
				}
			})
		}
		wg.Go(func() {
			metatest.WantKind(t, "good", ns.removeFile(ctx, &good, namespace.RemoveOptions{StoreOp: true}), 0)
		})
		var errs [2]error
		for i := range errs {
			wg.Go(func() { errs[i] = ns.removeFile(ctx, &twice, namespace.RemoveOptions{StoreOp: true}) })
		}
		queued(ctx, t, ns, 5)
		release()
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), kv.ErrRevision) {
			t.Errorf("removed twice at one time: %v, %v", errs[0], errs[1])
		}
		if got := all(t, ns); len(got) != 1 || got["changed"] == "" {
			t.Errorf("left %v", got)
		}
		ops, err := ns.StoreOps(ctx)
		if err != nil || len(ops) != 2 {
			t.Errorf("%d operations for two removals: %v", len(ops), err)
		}
	})
}

// TestRemovalGivenUp: a caller that stops before its batch begins has removed nothing, and takes
// nothing from the others. That holds too if it would have begun the batch.
func TestRemovalGivenUp(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		release := holdRemovals(ctx, ns)
		impatient, cancel := context.WithCancel(ctx)
		var others, wg sync.WaitGroup
		for i, ctx := range []context.Context{impatient, ctx, impatient, ctx} {
			e := create(t, ns, bb.RootDir, fmt.Sprint(i))
			if ctx == impatient {
				wg.Go(func() {
					err := ns.removeFile(ctx, &e, namespace.RemoveOptions{StoreOp: true})
					if bb.KindOf(err) != bb.Cancelled || errors.Is(err, kv.ErrUncertain) {
						t.Errorf("a removal that was given up: %v", err)
					}
				})
			} else {
				others.Go(func() {
					metatest.WantKind(t, "remove", ns.removeFile(ctx, &e, namespace.RemoveOptions{StoreOp: true}), 0)
				})
			}
			queued(ctx, t, ns, i+1) // the first one leads
		}
		cancel()
		wg.Wait()
		release()
		others.Wait()
		if got := all(t, ns); len(got) != 2 || got["0"] == "" || got["2"] == "" {
			t.Errorf("left %v", got)
		}
	})
}
