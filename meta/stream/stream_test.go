package stream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/embedded"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*conn.Conn, *stream.Stream) {
	t.Helper()
	c := kvtest.Dial(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())})
	s := stream.New(c, "NS_test")
	if err := s.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return c, s
}

func add(t *testing.T, s *stream.Stream, subject, data string, f stream.Fence) uint64 {
	t.Helper()
	seq, err := s.Append(metatest.Context(t), subject, []byte(data), f)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// wantMoved fails unless an append is refused because the fence is at last.
func wantMoved(t *testing.T, s *stream.Stream, subject string, f stream.Fence, last uint64) {
	t.Helper()
	_, err := s.Append(metatest.Context(t), subject, []byte("refused "+subject), f)
	var moved *stream.Moved
	if !errors.As(err, &moved) || moved.Last != last || moved.Unknown {
		t.Errorf("an append after %d to %s: %v, want one that has moved to %d", f.Last, subject, err, last)
	}
}

// read returns the messages of a subject between two sequences.
func read(t *testing.T, s *stream.Stream, subject string, from, to uint64) (found []string) {
	t.Helper()
	err := s.Read(metatest.Context(t), subject, from, to, func(m stream.Message) error {
		found = append(found, fmt.Sprintf("%d %s %s", m.Seq, m.Subject, m.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestFence(t *testing.T) {
	t.Parallel()
	_, s := open(t)
	first := add(t, s, "log", "a", stream.Fence{Subject: "log"})
	wantMoved(t, s, "log", stream.Fence{Subject: "log"}, first)
	second := add(t, s, "log", "b", stream.Fence{Subject: "log", Last: first})
	add(t, s, "chunk.1", "x", stream.Fence{Subject: "log", Last: second})
	wantMoved(t, s, "chunk.1", stream.Fence{Subject: "log", Last: first}, second)
	wantMoved(t, s, "log", stream.Fence{Subject: "log", Last: second + 9}, second)
	if got := read(t, s, "log", 0, second); !slices.Equal(got, []string{"1 log a", "2 log b"}) {
		t.Errorf("read %q", got)
	}
}

func TestReadAndPurge(t *testing.T) {
	t.Parallel()
	_, s := open(t)
	ctx := metatest.Context(t)
	last := add(t, s, "log", "claim", stream.Fence{Subject: "log"})
	f := stream.Fence{Subject: "log", Last: last}
	add(t, s, "chunk.1", "old", f)
	add(t, s, "chunk.2", "two", f)
	one := add(t, s, "chunk.1", "new", f)
	end := add(t, s, "log", "end", f)
	all := func() (found []string) {
		if err := s.ReadAll(ctx, end, func(m stream.Message) error {
			found = append(found, string(m.Data))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if got := all(); !slices.Equal(got, []string{"claim", "old", "two", "new", "end"}) {
		t.Errorf("all are %q", got)
	}
	if err := s.PurgeBelow(ctx, "chunk.1", one); err != nil {
		t.Fatal(err)
	}
	if err := s.PurgeBelow(ctx, "log", end); err != nil {
		t.Fatal(err)
	}
	if got := all(); !slices.Equal(got, []string{"two", "new", "end"}) {
		t.Errorf("after a purge all are %q", got)
	}
	for seq, want := range map[uint64]string{one: "new", one - 2: "", end + 1: ""} {
		if m, err := s.At(ctx, seq); err != nil || string(m.Data) != want {
			t.Errorf("at %d: %+v (%v), want %q", seq, m, err, want)
		}
	}
	if got := read(t, s, "log", 0, end); !slices.Equal(got, []string{"5 log end"}) {
		t.Errorf("after a purge the log is %q", got)
	}
	if got := read(t, s, "chunk.1", 0, one); !slices.Equal(got, []string{"4 chunk.1 new"}) {
		t.Errorf("after a purge the chunk is %q", got)
	}
}

// An append whose request or answer is lost is stored once, and its sequence is returned.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, sent := range []bool{false, true} {
		c, s := open(t)
		lose := true
		c.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
			if msgs[0].Subject == "NS_test.log" && lose {
				lose = false
				if sent {
					if _, err := c.Deliver(ctx, msgs); err != nil {
						return nil, err
					}
				}
				return nil, conn.ErrUncertain
			}
			return c.Deliver(ctx, msgs)
		})
		seq := add(t, s, "log", "a", stream.Fence{Subject: "log"})
		if lose || seq != 1 {
			t.Errorf("the append that was lost has sequence %d", seq)
		}
		add(t, s, "log", "b", stream.Fence{Subject: "log", Last: seq})
		if got := read(t, s, "log", 0, 2); !slices.Equal(got, []string{"1 log a", "2 log b"}) {
			t.Errorf("read %q", got)
		}
	}
}

// After an append was lost, and another process appended, the outcome is known if the append was
// stored, and unknown if not.
func TestLostAndMoved(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		c, s := open(t)
		lose := true
		c.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
			if msgs[0].Subject != "NS_test.log" || !lose {
				return c.Deliver(ctx, msgs)
			}
			lose = false
			if stored {
				if _, err := c.Deliver(ctx, msgs); err != nil {
					return nil, err
				}
			}
			last, err := s.Last(ctx, "log")
			if err == nil {
				_, err = s.Append(ctx, "log", []byte("other"), stream.Fence{Subject: "log", Last: last.Seq})
			}
			return nil, errors.Join(conn.ErrUncertain, err)
		})
		seq, err := s.Append(metatest.Context(t), "log", []byte("mine"), stream.Fence{Subject: "log"})
		var moved *stream.Moved
		if stored && (err != nil || seq != 1) {
			t.Errorf("one that was stored: %d %v", seq, err)
		}
		if !stored && (!errors.As(err, &moved) || !moved.Unknown || moved.Last != 1) {
			t.Errorf("one that was not: %d %v", seq, err)
		}
	}
}

// An append, and a question, that a server refuses since something else is on its way to the
// copies are sent again.
func TestInProcess(t *testing.T) {
	c, s := open(t)
	refused := 0
	c.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
		if refused++; refused%2 == 1 && msgs[0].Subject == "NS_test.log" {
			return &conn.Message{Data: []byte(`{"error":{"code":400,"err_code":10164,"description":"in process"}}`)}, nil
		}
		return c.Deliver(ctx, msgs)
	})
	if first := add(t, s, "log", "one", stream.Fence{Subject: "log"}); first != 1 || refused < 2 {
		t.Errorf("the first message has the sequence %d after %d requests", first, refused)
	}
}

func TestGone(t *testing.T) {
	t.Parallel()
	_, s := open(t)
	ctx := metatest.Context(t)
	if err := s.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "log", []byte("a"), stream.Fence{Subject: "log"}); !errors.Is(err, stream.ErrGone) {
		t.Errorf("an append to no stream: %v", err)
	}
	if err := s.Destroy(ctx); err != nil {
		t.Errorf("destroyed again: %v", err)
	}
}

// A stream whose directory the end of its deletion has moved away is made again, in a directory that a server finds when
// it starts.
func TestRemake(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	dir := t.TempDir()
	server := metatest.StartServer(t, dir)
	s := stream.New(kvtest.Dial(t, conn.Options{InProcess: server}), "NS_test")
	if err := s.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	add(t, s, "log", "before", stream.Fence{Subject: "log"})
	if err := os.Rename(metatest.StreamDir(t, dir, "NS_test"), filepath.Join(t.TempDir(), "moved")); err != nil {
		t.Fatal(err)
	}
	if err := s.Remake(ctx); err != nil {
		t.Fatal(err)
	}
	add(t, s, "log", "after", stream.Fence{Subject: "log"})
	server.Shutdown()
	s = stream.New(kvtest.Dial(t, conn.Options{InProcess: metatest.StartServer(t, dir)}), "NS_test")
	if got := read(t, s, "log", 0, 1); !slices.Equal(got, []string{"1 log after"}) {
		t.Errorf("the log is %q", got)
	}
}

// When the consumer of a read, and then the log, are destroyed while the read waits for a message
// that the server lacks, the read ends.
func TestDestroyedWhileRead(t *testing.T) {
	t.Parallel()
	c, s := open(t)
	ctx := metatest.Context(t)
	last := add(t, s, "log", "first", stream.Fence{Subject: "log"})
	destroy := func() error {
		log, err := c.JetStream().Stream(ctx, "NS_test")
		if err != nil {
			return err
		}
		for name := range log.ConsumerNames(ctx).Name() {
			if err := log.DeleteConsumer(ctx, name); err != nil {
				return err
			}
		}
		return s.Destroy(ctx)
	}
	waits, read := make(chan struct{}), make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		read <- s.Read(ctx, "log", 0, last+1, func(stream.Message) error { close(waits); return nil })
	}()
	<-waits
	if err := destroy(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-read:
		if !errors.Is(err, stream.ErrGone) && bb.KindOf(err) != bb.Lost {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it does not end, though its context has")
	}
}

// A read continues with another feed where one has lost a message.
func TestReadGap(t *testing.T) {
	t.Parallel()
	c, s := open(t)
	last := uint64(0)
	for i := range 9 {
		last = add(t, s, "log", fmt.Sprint(i), stream.Fence{Subject: "log", Last: last})
	}
	lost := 0
	c.LoseFed(func(m conn.Fed) bool {
		if m.Seq%4 != 0 || lost > 2 {
			return false
		}
		lost++
		return true
	})
	found := read(t, s, "log", 0, last)
	if len(found) != 9 || found[3] != "4 log 3" || found[8] != "9 log 8" || lost == 0 {
		t.Errorf("%q, of which %d were lost", found, lost)
	}
}

// An unreadable message is an error that names a remedy, and no call waits for it. Messages around
// it can be read.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	dir := t.TempDir()
	server := metatest.StartServer(t, dir)
	s := stream.New(kvtest.Dial(t, conn.Options{InProcess: server}), "NS_test")
	if err := s.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	// Of 8 MiB each: two blocks with the log, one with something else as well.
	last, data := uint64(0), strings.Repeat("x", 500_000)
	for i := range 40 {
		f := stream.Fence{Subject: "log", Last: last}
		if i < 20 {
			last = add(t, s, "log", fmt.Sprint(i, data), f)
		} else {
			add(t, s, "other", fmt.Sprint(i, data), f)
		}
	}
	server.Shutdown()
	metatest.HideBlock(t, dir, "NS_test", 2)
	server, err := embedded.Start(ctx, embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	s = stream.New(kvtest.Dial(t, conn.Options{InProcess: server}), "NS_test")
	var found []uint64
	note := func(m stream.Message) error { found = append(found, m.Seq); return nil }
	if err := s.Read(ctx, "log", 0, last, note); bb.KindOf(err) != bb.Lost || len(found) == 0 || found[len(found)-1] >= last {
		t.Errorf("read %d: %v", found, err)
	}
	before := len(found)
	found = nil
	if err := s.ReadAll(ctx, 40, note); err != nil {
		t.Error(err)
	}
	hidden := 40 - len(found)
	if !slices.IsSorted(found) || hidden < 5 || found[before-1] != uint64(before) || found[before] != uint64(before+hidden+1) {
		t.Errorf("read %d, want all but a block after %d", found, before)
	}
}

// An append ends that is refused for its fence although the newest message is where that is.
func TestRefusedForNothing(t *testing.T) {
	t.Parallel()
	c, s := open(t)
	c.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
		if msgs[0].Subject == "NS_test.log" {
			return &conn.Message{Data: []byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"}}`)}, nil
		}
		return c.Deliver(ctx, msgs)
	})
	if _, err := s.Append(metatest.Context(t), "log", []byte("a"), stream.Fence{Subject: "log"}); bb.KindOf(err) != bb.Lost {
		t.Error(err)
	}
}

// When the answer to an append was lost, and its fate cannot be found out, its outcome is unknown.
func TestLostAndUnanswered(t *testing.T) {
	t.Parallel()
	c, s := open(t)
	tries := 0
	c.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
		if msgs[0].Subject != "NS_test.log" {
			return nil, bb.E(bb.Internal, "read", "log", "the disk has failed")
		}
		answer, err := c.Deliver(ctx, msgs)
		if tries++; tries == 1 && err == nil {
			err = conn.ErrUncertain
		}
		return answer, err
	})
	if _, err := s.Append(metatest.Context(t), "log", []byte("a"), stream.Fence{Subject: "log"}); !errors.Is(err, conn.ErrMaybeDone) || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

// A log with copies is read by direct gets of several messages.
func TestReadInBatches(t *testing.T) {
	t.Parallel()
	server := metatest.StartServer(t, t.TempDir())
	one := stream.New(kvtest.Dial(t, conn.Options{InProcess: server}), "NS_test")
	if err := one.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	s := stream.New(kvtest.Dial(t, conn.Options{InProcess: server, Replicas: 3}), "NS_test") // as a client of several has it
	last := uint64(0)
	var want []string
	for i := range 1000 {
		last = add(t, one, "log", fmt.Sprint(i), stream.Fence{Subject: "log", Last: last})
		want = append(want, fmt.Sprintf("%d log %d", last, i))
		if i%3 == 0 {
			add(t, one, "page.1", fmt.Sprint("p", i), stream.Fence{Subject: "log", Last: last})
		}
	}
	for _, from := range []int{0, 1, 255, 256, 257, 999} {
		first, _, _ := strings.Cut(want[from], " ")
		seq, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, s, "log", seq, last); !slices.Equal(got, want[from:]) {
			t.Errorf("from %d: %d messages, want %d", from, len(got), len(want)-from)
		}
	}
	middle, _, _ := strings.Cut(want[500], " ")
	to, err := strconv.ParseUint(middle, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "log", 1, to); !slices.Equal(got, want[:501]) {
		t.Errorf("up to the middle: %d messages", len(got))
	}
	failed := errors.New("enough")
	if err := s.Read(metatest.Context(t), "log", 1, last, func(stream.Message) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a function that fails: %v", err)
	}
	if err := one.PurgeBelow(metatest.Context(t), "log", to); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "log", 1, last); !slices.Equal(got, want[500:]) {
		t.Errorf("after a purge: %d messages", len(got))
	}
	if err := s.Read(metatest.Context(t), "log", 1, last+100, func(stream.Message) error { return nil }); bb.KindOf(err) != bb.Lost {
		t.Errorf("a message that is not there: %v", err)
	}
}
