package batch

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
)

// Many nodes come to a job at once, each begins it, and one watches.
func TestJob(t *testing.T) {
	t.Parallel()
	s := metatest.StartListening(t, t.TempDir(), "127.0.0.1:0")
	m := New(kvtest.Dial(t, conn.Options{URLs: []string{s.URL()}}))
	ctx, cancel := context.WithCancel(metatest.Context(t))
	const nodes = 20
	var watching errgroup.Group
	left := make(chan struct{})
	watching.Go(func() error {
		return m.Watch(ctx, func(all []bb.Lifetime) {
			gone := len(all) == 1 && len(all[0].Nodes) == nodes
			for i := range nodes {
				gone = gone && !all[0].Nodes[i].Attached
			}
			if gone {
				select {
				case <-left:
				default:
					close(left)
				}
			}
		})
	})
	var g errgroup.Group
	for i := range nodes {
		g.Go(func() error {
			l, err := m.Begin(ctx, bb.Lifetime{Key: "job-c-1-0", Job: "1", UID: uint32(i), State: bb.LifetimeOpen, Created: time.Unix(1, 0).UTC()})
			if err != nil || l.Job != "1" {
				t.Errorf("%+v (%v)", l, err)
			}
			node := bb.NodeID("node." + string(rune('a'+i)))
			return m.ChangeAttachment(ctx, "job-c-1-0", node, func(n *bb.Attachment) error {
				n.Attached = true
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	l, err := m.Get(ctx, "job-c-1-0")
	if err != nil || len(l.Nodes) != nodes || l.Nodes[3].Node != "node.d" || !l.Nodes[3].Attached {
		t.Fatalf("%+v (%v)", l, err)
	}
	for i := range l.Nodes {
		g.Go(func() error {
			return m.ChangeAttachment(ctx, l.Key, l.Nodes[i].Node, func(n *bb.Attachment) error {
				n.Attached, n.Usage.Absorbed = false, 10
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
	case <-ctx.Done():
		t.Fatal("the watcher did not see them leave")
	}
	changed, err := m.Change(ctx, l.Key, func(l *bb.Lifetime) error { l.State = bb.LifetimeGone; return nil })
	if err != nil || changed.State != bb.LifetimeGone {
		t.Errorf("%+v (%v)", changed, err)
	}
	refused := errors.New("no")
	if _, err := m.Change(ctx, l.Key, func(*bb.Lifetime) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a change that gives up: %v", err)
	}
	all, err := m.List(ctx)
	if err != nil || len(all) != 1 || all[0].UID != l.UID || all[0].State != bb.LifetimeGone {
		t.Fatalf("%+v (%v)", all, err)
	}
	if total := all[0].Total(); total.Absorbed != 10*nodes {
		t.Errorf("all nodes together: %+v", total)
	}
	if err := m.Forget(ctx, l.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(ctx, l.Key); !errors.Is(err, bb.NotFound) {
		t.Errorf("forgotten: %v", err)
	}
	if _, err := m.Change(ctx, l.Key, func(*bb.Lifetime) error { return nil }); !errors.Is(err, bb.NotFound) {
		t.Errorf("changing what is forgotten: %v", err)
	}
	if _, err := m.Begin(ctx, bb.Lifetime{Key: "a.b"}); !errors.Is(err, bb.Invalid) {
		t.Errorf("a key that is none: %v", err)
	}
	cancel()
	if err := watching.Wait(); !errors.Is(err, bb.Cancelled) {
		t.Errorf("the watch ended with %v", err)
	}
}
