package conn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/meta/metatest"
)

// pushed is the n-th message of a consumer.
func pushed(n, seq, pending int) *nats.Msg {
	return &nats.Msg{Subject: "s.a", Reply: fmt.Sprintf("$JS.ACK.S.c.1.%d.%d.0.%d", seq, n, pending), Data: []byte("x")}
}

func heartbeat(last int) *nats.Msg {
	return &nats.Msg{Header: nats.Header{"Status": {"100"}, "Description": {"Idle Heartbeat"}, "Nats-Last-Consumer": {fmt.Sprint(last)}}}
}

// TestFeedGap: messages after a missing one are not passed on, whether the gap shows in the next one or in a heartbeat.
func TestFeedGap(t *testing.T) {
	for _, c := range []struct {
		name string
		msgs []*nats.Msg
		want []uint64
		gap  bool
	}{
		{"none", []*nats.Msg{pushed(1, 3, 1), heartbeat(1), pushed(2, 9, 0), heartbeat(2)}, []uint64{3, 9}, false},
		{"in the middle", []*nats.Msg{pushed(1, 3, 2), pushed(3, 9, 0), pushed(4, 10, 0)}, []uint64{3}, true},
		{"at the end", []*nats.Msg{pushed(1, 3, 1), heartbeat(2), pushed(2, 9, 0)}, []uint64{3}, true},
		{"of a consumer that was made anew", []*nats.Msg{pushed(1, 3, 1), pushed(2, 9, 0), heartbeat(0)}, []uint64{3, 9}, true},
		{"malformed", []*nats.Msg{{Subject: "s.a", Reply: "$JS.ACK.S", Data: []byte("x")}}, []uint64{0}, false},
		{"of a domain", []*nats.Msg{{Reply: "$JS.ACK.d.account.S.c.1.7.1.0.5.random"}}, []uint64{7}, false},
	} {
		var got []uint64
		f := &Feed{next: 1, handle: func(m Fed) { got = append(got, m.Seq) }}
		for _, m := range c.msgs {
			f.receive(m)
		}
		if !slices.Equal(got, c.want) || f.Gap() != c.gap {
			t.Errorf("%s: %v, gap %v", c.name, got, f.Gap())
		}
	}
}

// TestFeed passes on a stream's messages, however slowly they are read, and then new ones. The server's
// consumer is gone when it was stopped.
func TestFeed(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	c, err := Dial(ctx, Options{InProcess: metatest.StartServer(t, t.TempDir()), Logger: metatest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Feed(ctx, "S", "s.>", 1, func(Fed) {}); !errors.Is(err, ErrNoStream) {
		t.Fatalf("of a stream that does not exist: %v", err)
	}
	stream, err := c.JetStream().CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	// More bytes than the server's flow control leaves unanswered at first.
	const n = 2000
	body := []byte(strings.Repeat("x", 4096))
	publish := func() {
		if _, err := c.Request(ctx, &nats.Msg{Subject: "s.a", Data: body}); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		publish()
	}
	msgs := make(chan Fed)
	feed, err := c.Feed(ctx, "S", "s.>", 2, func(m Fed) {
		select {
		case msgs <- m:
		case <-ctx.Done():
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	fresh := make(chan Fed, 1)
	now, err := c.Feed(ctx, "S", "s.>", FromNow, func(m Fed) { fresh <- m })
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(2); seq <= n; seq++ {
		if m := <-msgs; m.Seq != seq || m.Pending != n-seq || m.Subject != "s.a" || len(m.Data) != len(body) {
			t.Fatalf("message %d: %d of %s, %d pending", seq, m.Seq, m.Subject, m.Pending)
		}
	}
	publish()
	if m := <-msgs; m.Seq != n+1 {
		t.Errorf("one more: %d", m.Seq)
	}
	if m := <-fresh; m.Seq != n+1 {
		t.Errorf("from now on: %d", m.Seq)
	}
	if feed.Gap() || feed.Silent() || now.Gap() {
		t.Errorf("gap %v, silent %v", feed.Gap(), feed.Silent())
	}
	feed.Stop(ctx)
	now.Stop(ctx)
	if info, err := stream.Info(ctx); err != nil || info.State.Consumers != 0 {
		t.Errorf("%d consumers are left: %v", info.State.Consumers, err)
	}
	feed.heard.Store(time.Now().Add(-feedSilence - time.Second).UnixNano())
	if !feed.Silent() {
		t.Error("a server that sends no heartbeats is not noticed")
	}
}
