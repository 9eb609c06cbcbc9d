package shared_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog/shared"
	"forebay/meta/stream"
)

// forgetful is a log in memory that can lose its end.
type forgetful struct {
	mu       sync.Mutex
	messages []stream.Message // in the order of their sequences
	last     uint64
	gone     bool
}

// setBack removes the log's messages after a sequence.
func (l *forgetful) setBack(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = slices.DeleteFunc(l.messages, func(m stream.Message) bool { return m.Seq > seq })
	l.last = seq
}

func (l *forgetful) end() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *forgetful) setGone(gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = gone
}

func (l *forgetful) isGone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// some returns the messages that are selected.
func (l *forgetful) some(is func(*stream.Message) bool) (found []stream.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.messages {
		if is(&l.messages[i]) {
			found = append(found, l.messages[i])
		}
	}
	return found
}

func newest(messages []stream.Message) stream.Message {
	if len(messages) == 0 {
		return stream.Message{}
	}
	return messages[len(messages)-1]
}

func (l *forgetful) Append(_ context.Context, subject string, data []byte, f stream.Fence) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := uint64(0)
	for _, m := range l.messages {
		if m.Subject == f.Subject {
			at = m.Seq
		}
	}
	if at != f.Last {
		return 0, &stream.Moved{Last: at}
	}
	l.last++
	l.messages = append(l.messages, stream.Message{Subject: subject, Seq: l.last, Data: slices.Clone(data)})
	return l.last, nil
}

func (l *forgetful) Last(_ context.Context, subject string) (stream.Message, error) {
	if l.isGone() {
		return stream.Message{}, stream.ErrGone
	}
	return newest(l.some(func(m *stream.Message) bool { return m.Subject == subject })), nil
}

func (l *forgetful) At(_ context.Context, seq uint64) (stream.Message, error) {
	return newest(l.some(func(m *stream.Message) bool { return m.Seq == seq })), nil
}

func (l *forgetful) Read(_ context.Context, subject string, from, to uint64, fn func(stream.Message) error) error {
	return each(l.some(func(m *stream.Message) bool { return m.Subject == subject && m.Seq >= from && m.Seq <= to }), fn)
}

func (l *forgetful) ReadAll(_ context.Context, to uint64, fn func(stream.Message) error) error {
	return each(l.some(func(m *stream.Message) bool { return m.Seq <= to }), fn)
}

func each(messages []stream.Message, fn func(stream.Message) error) error {
	for _, m := range messages {
		if err := fn(m); err != nil {
			return err
		}
	}
	return nil
}

func (l *forgetful) PurgeBelow(_ context.Context, subject string, seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = slices.DeleteFunc(l.messages, func(m stream.Message) bool { return m.Subject == subject && m.Seq < seq })
	return nil
}

// The owner ends together with one of the two daemons that hold the end of the log, and its server loses any part of
// that. No acknowledged change is lost.
func TestOwnerAndHolderEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		log := &forgetful{}
		c := inProcess(t, newNetwork(seed, 0), shared.Options{Lease: time.Millisecond, CheckpointBytes: 3000, Settle: time.Hour})
		c.log = log
		nodes := []bb.NodeID{"a", "b", "c", "d"}
		for i, node := range nodes {
			c.start(node, i)
		}
		claim(t, c.net.daemon("a"))
		prepare(t, c.net.daemon("a"))
		owner, want, made := c.net.daemon("a"), map[string]bool{}, 0
		change := func(n int) {
			for range n {
				d := c.net.daemon(nodes[rnd.IntN(len(nodes))])
				if rnd.IntN(3) > 0 || len(want) == 0 {
					made++
					name := fmt.Sprint("f", made)
					namespacetest.Create(t, d.tree, bb.RootDir, name)
					want[name] = true
					continue
				}
				name := slices.Min(slices.Collect(maps.Keys(want)))
				if _, err := d.tree.Remove(metatest.Context(t), bb.RootDir, name, namespace.RemoveOptions{}); err != nil {
					t.Fatal(err)
				}
				delete(want, name)
			}
		}
		for round := range 4 {
			change(10)
			settled := log.end()
			change(1 + rnd.IntN(20))
			holders, owns := owner.tree.Holders()
			for range 1000 { // daemons that have just started are found after a pause
				if len(holders) == 2 {
					break
				}
				time.Sleep(5 * time.Millisecond)
				change(1)
				holders, owns = owner.tree.Holders()
			}
			if len(holders) != 2 || !owns || slices.Contains(holders, owner.node) {
				t.Fatalf("seed %d: %v hold the end of the log of %s (%v)", seed, holders, owner.node, owns)
			}
			gone := []bb.NodeID{owner.node, holders[rnd.IntN(2)]}
			for _, node := range gone {
				c.kill(c.net.daemon(node))
			}
			log.setBack(settled + rnd.Uint64N(log.end()-settled+1))
			left := slices.DeleteFunc(slices.Clone(nodes), func(n bb.NodeID) bool { return slices.Contains(gone, n) })
			owner = c.net.daemon(left[rnd.IntN(len(left))])
			claim(t, owner)
			for i, node := range gone {
				c.start(node, i)
			}
			got := map[string]bool{}
			if err := owner.tree.Scan(metatest.Context(t), bb.RootDir, func(e bb.Entry) error { got[e.Name] = true; return nil }); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(got, want) {
				t.Fatalf("seed %d, round %d: %d names, want %d", seed, round, len(got), len(want))
			}
		}
	}
}

// An owner that waits for the log, as all do while its servers elect a leader, is not missing. Another daemon would
// claim the log at its return, and calls would wait for the end of a lease.
func TestOwnerThatWaitsForTheLog(t *testing.T) {
	t.Parallel()
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: time.Second, Patience: 100 * time.Millisecond})
	a, b := c.start("a", 0), c.start("b", 1)
	claim(t, a)
	prepare(t, a)
	if _, err := b.tree.Root(t.Context()); err != nil { // it has found the owner
		t.Fatal(err)
	}
	a.log.all.close()
	b.log.all.close()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := b.tree.Mkdir(ctx, bb.RootDir, "d", namespace.Owner{Mode: 0o755})
		answered <- err
	}()
	time.Sleep(5 * time.Second) // longer than a daemon may be silent
	b.log.all.open()
	if _, err := b.tree.Step(t.Context(), c.members()); err != nil || b.tree.Owns() {
		t.Errorf("another daemon owns the log: %v (%v)", b.tree.Owns(), err)
	}
	a.log.all.open()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// An owner that does not reach the log, which others reach, is missing.
func TestOwnerWithoutTheLog(t *testing.T) {
	t.Parallel()
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: 10 * time.Millisecond, Patience: 100 * time.Millisecond})
	a, b := c.start("a", 0), c.start("b", 1)
	claim(t, a)
	prepare(t, a)
	a.log.all.close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stop()
	watches.Go(func() { b.tree.Watch(watching, shared.Surroundings{Members: c.members}) })
	if _, err := b.tree.Mkdir(ctx, bb.RootDir, "d", namespace.Owner{Mode: 0o755}); err != nil || !b.tree.Owns() {
		t.Errorf("the other daemon owns the log: %v (%v)", b.tree.Owns(), err)
	}
}
