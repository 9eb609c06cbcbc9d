//go:build ofi && cgo

package ofi

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/lifeline"
	"forebay/rdma/ofi/internal/local"
)

// processorTime is the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleUsesNoProcessor: sessions that do nothing, which share a loop, use next to no processor
// time. A loop that polled would use all of a processor.
func TestIdleUsesNoProcessor(t *testing.T) {
	for _, name := range []string{"tcp", "sockets", "hardware", "small"} {
		t.Run(name, func(t *testing.T) { idleUsesNoProcessor(t, name) })
	}
}

func idleUsesNoProcessor(t *testing.T, name string) {
	x := newLinkOf(t, name, all)
	for range 8 {
		x.connect()
		must(t, x.do(rdma.OpWrite, 0, make([]byte, 100_000)))
	}
	const idle = 2 * time.Second
	time.Sleep(100 * time.Millisecond) // the last steps end
	// A loaded machine, an emulated one all the more, makes each wake-up dearer. A connection that polls uses
	// all of each period.
	least := idle
	for range 5 {
		before := processorTime(t)
		time.Sleep(idle)
		if least = min(least, processorTime(t)-before); least <= idle/10 {
			return
		}
	}
	t.Errorf("nine idle connections used at least %v in each %v", least, idle)
}

// newLinkOf is newLink over a configuration.
func newLinkOf(t *testing.T, name string, access rdma.Access) *link {
	t.Helper()
	return newLinkWith(t, configurations[name].opts, configurations[name].rules, access)
}

func newLinkWith(t *testing.T, opts Options, rules fi.Rules, access rdma.Access) *link {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) }) // runs last
	x := &link{t: t}
	for _, f := range []**Fabric{&x.near, &x.far} {
		made, err := newFabric(opts, rules)
		must(t, err)
		t.Cleanup(func() { must(t, made.Close()) })
		*f = made
	}
	var err error
	x.listener, err = x.far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	x.region = registered(t, x.far, 1<<20, access)
	x.connect()
	return x
}

// TestLocalMemoryIsNotOffered: a peer has an endpoint in the domain in which the buffers of all
// sessions are registered, and cannot reach them, even with their keys.
func TestLocalMemoryIsNotOffered(t *testing.T) { localMemoryIsNotOffered(t, "hardware") }

func localMemoryIsNotOffered(t *testing.T, name string) {
	for which, kind := range map[string]rdma.OpKind{"write": rdma.OpWrite, "read": rdma.OpRead} {
		t.Run(which, func(t *testing.T) {
			x := newLinkOf(t, name, all)
			victim := x.conn
			x.connect()                                     // another session, whose peer is up to something
			must(t, x.do(rdma.OpRead, 0, make([]byte, 10))) // needs a stage
			own := registered(t, x.near, 1<<16, rdma.AccessLocal)
			stages := takeStages(t, x.near, x.conn)
			first := slices.MinFunc(stages, func(a, b local.Stage) int { return cmp.Compare(fi.Address(a.Mem), fi.Address(b.Mem)) })
			for _, s := range stages {
				x.near.local.Stages.Give(s)
			}
			for what, m := range map[string]struct {
				mem []byte
				at  fi.Place
			}{
				"where reads behind writes go": {x.near.sight.sink.Mem, fi.Place{Addr: x.near.sight.sink.Reg.Base, Key: x.near.sight.sink.Reg.Key}},
				"stages":                       {first.Mem, fi.Place{Addr: first.Reg.Base, Key: first.Reg.Key}},
				"a region without access":      {own.Bytes(), own.Grant()},
			} {
				before := bytes.Clone(m.mem[:100])
				g := grant{key: lifeline.ForRegion(lifeline.KindOpen, 77).Key, access: all, size: 100, at: m.at}
				x.target.mu.Lock()
				x.target.mu.grants.byKey[g.key], x.target.mu.grants.byID[77] = &g, &g
				x.target.mu.Unlock()
				b := bytes.Repeat([]byte{7}, 100)
				op := rdma.Op{Kind: kind, Local: b, Remote: rdma.Remote{Key: g.key}}
				err := rdma.Do(t.Context(), x.target, []rdma.Op{op})
				if !errors.Is(err, rdma.ErrAccess) && !errors.Is(err, rdma.ErrPeerGone) {
					t.Errorf("%s: the fabric let it pass, or failed otherwise: %v", what, err)
				}
				if !bytes.Equal(before, m.mem[:100]) {
					t.Errorf("%s: changed", what)
				}
				x.connect()
			}
			must(t, rdma.Do(t.Context(), victim, []rdma.Op{{Kind: rdma.OpWrite, Local: make([]byte, 10), Remote: rdma.Remote{Key: x.region.Key()}}}))
		})
	}
}

// TestStagesAreShared: a connection that holds all stages, because its peer stands still, leaves
// the others theirs, and gets no more memory itself.
func TestStagesAreShared(t *testing.T) {
	f, err := newFabric(configurations["hardware"].opts, configurations["hardware"].rules)
	must(t, err)
	defer f.Close()
	greedy, modest := &conn{fabric: f}, &conn{fabric: f}
	var held []local.Stage
	for n := 0; ; n++ {
		s, err := f.local.Stages.Take(greedy, n)
		must(t, err)
		if s.Mem == nil {
			break
		}
		held = append(held, s)
	}
	if len(held) != local.SlabStages {
		t.Errorf("one connection got %d stages", len(held))
	}
	for n := range local.Share {
		s, err := f.local.Stages.Take(modest, n)
		must(t, err)
		if s.Mem == nil {
			t.Fatalf("the other one got %d stages", n)
		}
		held = append(held, s)
	}
	for _, s := range held {
		f.local.Stages.Give(s)
	}
	if n, free := f.local.Stages.Count(); n != 2*local.SlabStages || free != n {
		t.Errorf("%d stages, %d of them free", n, free)
	}
}
