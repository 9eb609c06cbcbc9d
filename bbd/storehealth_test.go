package bbd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/bbd/status"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// storeOf returns how the store of the node's only buffer answers. If that is unknown, it returns a
// zero one.
func (n *node) storeOf() status.StoreHealth {
	n.t.Helper()
	s := n.daemon.Status()
	if len(s.Buffers) != 1 {
		n.t.Fatalf("buffers: %+v", s.Buffers)
	}
	if s.Buffers[0].Store == nil {
		return status.StoreHealth{}
	}
	return *s.Buffers[0].Store
}

// If a store fails, or leaves a call without an answer, it is shown as such, with the time since
// when and the reason. When it is back, it is shown as one that answers.
func TestStatusOfStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, state, reason string
		rule                fault.Rule
	}{
		{"fails", "failing", "space", fault.Rule{Op: "put", Kind: fault.Full}},
		{"hangs", "silent", "no answer to put f", fault.Rule{Op: "put", Kind: fault.Slow, Delay: time.Hour}},
		{"hangs at a removal", "silent", "no answer to remove g", fault.Rule{Op: "remove", Kind: fault.Slow, Delay: time.Hour}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, nil)
			b, dir := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
			write(t, b, "g", random(10))
			eventually(t, "the store has g", func() bool {
				_, err := os.Stat(filepath.Join(dir, "g")) // else its put may be the one that hangs
				return err == nil && n.storeOf().State == "answers"
			})
			n.faults.Set(c.rule)
			began := time.Now()
			write(t, b, "f", random(10))
			if err := b.Remove(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
			var got status.StoreHealth
			eventually(t, "the fault is shown", func() bool {
				got = n.storeOf()
				return got.State == c.state && strings.Contains(got.Reason, c.reason)
			})
			if got.Since.Before(began) || time.Since(got.Since) > time.Minute || got.For <= 0 {
				t.Errorf("since %v, %v seconds; the fault began at %v", got.Since, got.For, began)
			}
			if c.rule.Kind == fault.Slow {
				return // the call ends with the daemon
			}
			n.faults.Set()
			eventually(t, "it answers again", func() bool { return n.storeOf().State == "answers" })
		})
	}
}

// A file that is in the place of a store's directory is a store that fails, until the directory is
// back.
func TestStatusOfStoreThatIsAFile(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	b, dir := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	write(t, b, "g", random(10))
	eventually(t, "the store answers", func() bool { return n.storeOf().State == "answers" })
	away := dir + ".away"
	if err := errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	write(t, b, "f", random(10))
	eventually(t, "the store is shown as failing", func() bool { return n.storeOf().State == "failing" })
	if err := errors.Join(os.Remove(dir), os.Rename(away, dir)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it answers again", func() bool { return n.storeOf().State == "answers" })
}

// A drain that leaves something out is not done.
func TestDrainThatFailedIsNotDone(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"kept"}})
	state := func() string {
		t.Helper()
		jobs, err := admin.Operations(t.Context(), c)
		if err != nil || len(jobs) == 0 {
			t.Fatalf("jobs: %v (%v)", jobs, err)
		}
		return jobs[0].State
	}
	nodes[0].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "f", random(10))
	if _, err := admin.Drain(t.Context(), c, "b", time.Second, nil); err == nil {
		t.Fatal("the drain succeeded")
	}
	eventually(t, "the drain has failed", func() bool { return state() == "failed" })
	nodes[0].faults.Set()
	if _, err := admin.Drain(t.Context(), c, "b", 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != "done" {
		t.Errorf("a drain that saved everything is %s", got)
	}
	write(t, b, "kept", random(10))
	if _, err := admin.Drain(t.Context(), c, "b", 0, nil); err == nil {
		t.Fatal("a drain of a name that is held back succeeded")
	}
	if got := state(); got != "incomplete" {
		t.Errorf("a drain that left a name out is %s", got)
	}
}

// A drain that ends before a store answers names each file with a reason, also those that no flush was
// begun for.
func TestDrainNamesFilesThatNeverFlew(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Slow, Delay: time.Hour})
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for i := range 200 { // more than may be on their way
		path := fmt.Sprintf("d/f%d", i)
		write(t, b, path, random(10))
		want[path] = true
	}
	eventually(t, "flushes stall", func() bool { s := n.daemon.Status().Buffers[0]; return s.Stalled > 0 && s.Stalled == s.Flushing })
	var report admin.Report
	patience := 50 * time.Millisecond
	eventually(t, "a drain names all files", func() bool { // a busy machine needs more time for that
		patience *= 2
		var err error
		if report, err = admin.Drain(t.Context(), c, "b", patience, nil); err == nil {
			t.Fatal("a drain whose store hangs succeeded")
		}
		return len(report.Failed) == len(want) && !slices.ContainsFunc(report.Failed, func(f admin.Failure) bool {
			return strings.Contains(f.Reason, "its flush has not ended") // it has just begun, as stalled ones hold no worker
		})
	})
	var begun, waiting int
	for _, f := range report.Failed {
		if !want[f.Path] {
			t.Errorf("an unknown file: %+v", f)
		}
		delete(want, f.Path)
		switch {
		case strings.Contains(f.Reason, "the store has not answered for"):
			begun++
		case strings.Contains(f.Reason, "its flush has not begun:") && strings.Contains(f.Reason, "no answer of the store, the oldest, that of d/f"):
			waiting++
		default:
			t.Errorf("%s: %q", f.Path, f.Reason)
		}
	}
	if begun == 0 || waiting == 0 {
		t.Errorf("%d flushes begun, %d waiting", begun, waiting)
	}
}

// A store that hangs is reported by events, with the age of its oldest flush, and with the Lustre targets
// that do not answer, for as long as it hangs.
func TestHungLustreNamesTargets(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	n := startNode(t, func(cfg *bbd.Config) {
		cfg.Lustre.Is = func(id string) bool { return id != "" }
		cfg.Lustre.Check = func(context.Context) ([]byte, error) {
			asked.Add(1)
			return []byte("fs-OST0000-osc-ff active.\nfs-OST0001-osc-ff inactive.\n"), nil
		}
	})
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan admin.Event, 1000)
	var listens sync.WaitGroup
	listens.Go(func() {
		for e, err := range admin.Events(ctx, c, "b") {
			if err != nil {
				return
			}
			told <- e
		}
	})
	defer listens.Wait()
	defer cancel()
	next := func(kind admin.EventKind) admin.Event {
		t.Helper()
		for {
			select {
			case e := <-told:
				if e.Kind == kind {
					return e
				}
			case <-time.After(time.Minute):
				t.Fatalf("no event %s", kind)
			}
		}
	}
	write(t, b, "g", random(10))
	eventually(t, "the store has g", func() bool {
		_, err := os.Stat(filepath.Join(dir, "g"))
		return err == nil && n.storeOf().State == "answers"
	})
	if asked.Load() != 0 {
		t.Error("the targets of a store that answers are asked for")
	}
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Slow, Delay: 12 * time.Second, Count: 1})
	write(t, b, "f", random(10))
	if e := next(admin.EventStoreFails); !strings.Contains(e.Reason, "no answer to put f") {
		t.Errorf("the event's reason: %q", e.Reason)
	}
	eventually(t, "the target is named", func() bool {
		got := n.daemon.Status().Buffers[0]
		return got.Store.State == "silent" && slices.Equal(got.Store.Targets, []string{"fs-OST0001"}) && got.OldestFlight >= 5
	})
	next(admin.EventStoreWorks)
	if got := n.storeOf(); got.Targets != nil {
		t.Errorf("of a store that answers again: %q", got.Targets)
	}
}

// An S3 server that is stopped keeps its connections and answers nothing.
func TestStatusOfStoppedS3(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "s3", Backing: server.URL(bucket, "p")})
	write(t, b, "before", random(10))
	drain(t, c, "s3")
	if got := n.storeOf(); got.State != "answers" {
		t.Fatalf("a store that works: %+v", got)
	}
	resume := server.Pause(t)
	began := time.Now()
	write(t, b, "f", random(10))
	var got status.StoreHealth
	eventually(t, "the store is silent", func() bool {
		got = n.storeOf()
		return got.State == "silent"
	})
	if got.Since.Before(began) || got.Op == "" || got.Path != "f" || !strings.Contains(got.Reason, "no answer") {
		t.Errorf("a stopped server: %+v", got)
	}
	resume()
	eventually(t, "it answers again", func() bool { return n.storeOf().State == "answers" })
	drain(t, c, "s3")
}

// heard has the lines that a daemon has logged.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
	also io.Writer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(p)
	return h.also.Write(p)
}

// lines returns those that have a text.
func (h *heard) lines(text string) (found []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(h.text.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// The log has one line when a store begins to fail or does not answer, and one when it answers
// again, however often it is tried in between.
func TestLogOfStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, begins, reason string
		rule                 fault.Rule
	}{
		{"fails", `msg="a store fails"`, "no space", fault.Rule{Op: "put", Kind: fault.Full}},
		{"hangs", `msg="a store does not answer"`, "no answer to put f", fault.Rule{Op: "put", Kind: fault.Slow, Delay: 8 * time.Second, Count: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			log := &heard{also: t.Output()}
			n := startNode(t, func(cfg *bbd.Config) {
				cfg.Log = slog.New(slog.NewTextHandler(log, nil))
				cfg.Flush.Backoff = [2]time.Duration{10 * time.Millisecond, 20 * time.Millisecond}
			})
			b, dir := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
			write(t, b, "g", random(10))
			eventually(t, "the store has g", func() bool {
				_, err := os.Stat(filepath.Join(dir, "g")) // else its put may be the one that hangs
				return err == nil && n.storeOf().State == "answers"
			})
			n.faults.Set(c.rule)
			write(t, b, "f", random(10))
			eventually(t, "the log has it", func() bool { return len(log.lines(c.begins)) > 0 })
			if c.rule.Kind != fault.Slow {
				eventually(t, "it is tried often", func() bool { return n.storeOf().Attempts > 50 })
				n.faults.Set()
			}
			eventually(t, "the log has the end", func() bool { return len(log.lines("a store answers again")) > 0 })
			begin := log.lines(c.begins)
			if len(begin) != 1 || len(log.lines("a store ")) != 2 {
				t.Fatalf("logged: %q", log.lines("a store "))
			}
			for _, part := range []string{"buffer=b ", dir, "since=2", c.reason} {
				if !strings.Contains(begin[0], part) {
					t.Errorf("%q has no %q", begin[0], part)
				}
			}
		})
	}
}
