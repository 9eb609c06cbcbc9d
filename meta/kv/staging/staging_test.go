package staging

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
)

// disk is a server with or without room in memory.
type disk struct {
	mu     sync.Mutex
	full   bool
	onDisk bool
	moves  int
	under  func() int // attempts that are under way
	t      *testing.T
}

func (d *disk) BatchInMemory(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return bb.E(bb.NoSpace, "test", "", "full")
	}
	d.onDisk = false
	return nil
}

func (d *disk) BatchOnDisk(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.under(); n != 0 {
		d.t.Errorf("%d attempts are under way", n)
	}
	d.onDisk, d.moves = true, d.moves+1
	return nil
}

func (d *disk) set(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// send is one attempt.
func (d *disk) send() error {
	time.Sleep(time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full && !d.onDisk {
		return errors.New("refused")
	}
	return nil
}

// Many whose batches are refused go on together through the disk, and come back when there is room.
func TestFullMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		under := 0
		d := &disk{t: t, under: func() int { mu.Lock(); defer mu.Unlock(); return under }}
		s := New(d, "stream", slog.New(slog.DiscardHandler))
		s.InMemory()
		settled := func(context.Context) error { return nil }
		publish := func() {
			for refused := 0; ; {
				leave, err := s.Enter(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				under++
				mu.Unlock()
				err = d.send()
				mu.Lock()
				under--
				mu.Unlock()
				leave()
				if err == nil {
					return
				}
				refused++
				s.Refused(t.Context(), refused, settled)
			}
		}
		all := func() {
			var group sync.WaitGroup
			for range 3 * atOnce {
				group.Go(publish)
			}
			group.Wait()
		}
		all()
		if d.moves != 0 {
			t.Fatal("it went to the disk without need")
		}
		d.set(true)
		all()
		if d.moves != 1 || !d.onDisk {
			t.Fatalf("%d moves to the disk, on the disk: %v", d.moves, d.onDisk)
		}
		time.Sleep(again + time.Second) // of the bubble's clock
		all()
		if d.moves != 1 || !d.onDisk {
			t.Errorf("without room: %d moves to the disk, on the disk: %v", d.moves, d.onDisk)
		}
		d.set(false)
		time.Sleep(again + time.Second)
		if all(); d.onDisk {
			t.Error("with room it stays on the disk")
		}
	})
}

// While the server may have something to do for what was sent, nothing moves; a context that ends
// ends the wait.
func TestUnsettled(t *testing.T) {
	d := &disk{t: t, full: true, under: func() int { return 0 }}
	s := New(d, "stream", slog.New(slog.DiscardHandler))
	s.Refused(t.Context(), refusals, func(context.Context) error { return errors.New("no answer") })
	if s.Refused(t.Context(), refusals-1, func(context.Context) error { return nil }); d.onDisk {
		t.Fatal("it went to the disk")
	}
	leave, err := s.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.Refused(ctx, refusals, func(context.Context) error { return nil }); d.onDisk {
		t.Fatal("it went to the disk while an attempt was under way")
	}
	leave()
	if s.Refused(t.Context(), refusals, func(context.Context) error { return nil }); !d.onDisk {
		t.Error("it did not go to the disk")
	}
	if s := New(nil, "stream", slog.New(slog.DiscardHandler)); true { // a server of another process
		s.InMemory()
		s.Refused(t.Context(), refusals, nil)
	}
}
