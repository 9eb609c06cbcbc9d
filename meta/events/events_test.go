package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
)

// publisherOn returns a publisher over a connection of its own.
func publisherOn(t *testing.T, server conn.InProcess) *Publisher {
	t.Helper()
	p := NewPublisher(kvtest.Dial(t, conn.Options{InProcess: server}))
	t.Cleanup(p.Close)
	return p
}

// event decodes a received event.
func event(r Received, err error) (e bb.Event, _ error) {
	if err == nil {
		err = json.Unmarshal(r.JSON, &e)
	}
	return e, err
}

func TestEvents(t *testing.T) {
	t.Parallel()
	s := metatest.StartServer(t, t.TempDir())
	m, other := publisherOn(t, s), kvtest.Dial(t, conn.Options{InProcess: s})
	ctx := metatest.Context(t)
	one, err := Subscribe(ctx, other, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	all, err := Subscribe(ctx, other, "")
	if err != nil {
		t.Fatal(err)
	}
	want := bb.Event{Time: time.Unix(3, 4).UTC(), Kind: bb.EventFlushed, Buffer: "one", Path: "a/b", Generation: 2, Bytes: 5, Node: "n"}
	m.Publish(bb.Event{Kind: bb.EventCommitted, Buffer: "two"})
	m.Publish(want)
	if got, err := event(one.Next(ctx)); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	for _, buffer := range []string{"two", "one"} {
		r, err := all.Next(ctx)
		if got, err := event(r, err); err != nil || got.Buffer != buffer || r.Buffer != buffer || r.Kind != got.Kind {
			t.Errorf("%+v %v", r, err)
		}
	}
	m.Publish(bb.Event{Kind: bb.EventFlushed, Buffer: "not a name"})
	if m.Dropped() != 1 {
		t.Errorf("%+v", m.Dropped())
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	_, err = all.Next(short)
	metatest.WantKind(t, "next when cancelled", err, bb.Cancelled)
	go all.Close()
	_, err = all.Next(ctx)
	metatest.WantKind(t, "next when closed", err, bb.Cancelled)
	all.Close()
	_, err = Subscribe(ctx, other, "no.name")
	metatest.WantKind(t, "subscribe to a bad name", err, bb.Invalid)
}

func TestMissedEvents(t *testing.T) {
	t.Parallel()
	s := metatest.StartServer(t, t.TempDir())
	m := publisherOn(t, s)
	ctx := metatest.Context(t)
	sub, err := Subscribe(ctx, m.c, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	sent := 0
	for sub.sub.Dropped() == 0 {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		if len(m.queue) == cap(m.queue) { // the publisher is to drop none
			runtime.Gosched()
			continue
		}
		m.Publish(bb.Event{Kind: bb.EventEvicted, Buffer: "b"})
		sent++
	}
	for len(m.queue) > 0 {
		runtime.Gosched()
	}
	received, missed := 0, 0
	m.Publish(bb.Event{Kind: bb.EventDrained, Buffer: "b"})
	for {
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, err := sub.Next(short)
		cancel()
		var gap *MissedError
		if errors.As(err, &gap) {
			missed += gap.Events
		} else if err != nil {
			break
		} else {
			received++
		}
	}
	if missed == 0 || received == 0 || received+missed+int(m.Dropped()) != sent+1 {
		t.Errorf("sent %d, received %d, told of %d missed, dropped %d", sent+1, received, missed, m.Dropped())
	}
}

// TestDroppedEvents: subscribers hear of events that their publisher has dropped.
func TestDroppedEvents(t *testing.T) {
	t.Parallel()
	s := metatest.StartServer(t, t.TempDir())
	ctx := metatest.Context(t)
	c := kvtest.Dial(t, conn.Options{InProcess: s})
	var subs []*Subscription
	for _, buffer := range []string{"a", "b", ""} {
		sub, err := Subscribe(ctx, c, buffer)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		subs = append(subs, sub)
	}
	const room = 10
	p := &Publisher{c: c, queue: make(chan bb.Event, room), done: make(chan struct{})}
	for i := range room + 3 { // nothing takes events away yet
		p.Publish(bb.Event{Kind: bb.EventCommitted, Buffer: "a", Bytes: int64(i)})
	}
	p.Publish(bb.Event{Kind: bb.EventCommitted, Buffer: "b"})
	go p.run()
	defer p.Close()
	missed := func(sub *Subscription, events int) (by []string) {
		for range events {
			e, err := event(sub.Next(ctx))
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == bb.EventMissed {
				by = append(by, e.Buffer)
				if e.Buffer == "a" && !strings.HasPrefix(e.Reason, "3 events") {
					t.Errorf("%+v", e)
				}
			}
		}
		slices.Sort(by)
		return by
	}
	for i, want := range []string{"[a]", "[b]", "[a b]"} {
		if got := fmt.Sprint(missed(subs[i], []int{room + 1, 1, room + 2}[i])); got != want {
			t.Errorf("subscriber %d hears of dropped events of %v, not of %v", i, got, want)
		}
	}
	if n := p.Dropped(); n != 4 {
		t.Errorf("%d dropped", n)
	}
	p.Publish(bb.Event{Kind: bb.EventRemoved, Buffer: "b"}) // it is told once
	if e, err := subs[1].Next(ctx); err != nil || e.Kind != bb.EventRemoved {
		t.Errorf("%+v %v", e, err)
	}
}
