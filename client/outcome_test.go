package client_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// changes are calls that send a request which must not be carried out twice.
var changes = map[string]struct {
	typ  wire.Type
	call func(ctx context.Context, c *client.Client, b *client.Buffer) error
}{
	"mkdir": {wire.Type_TYPE_MKDIR, func(ctx context.Context, _ *client.Client, b *client.Buffer) error { return b.Mkdir(ctx, "d", 0o755) }},
	"mkdirall": {wire.Type_TYPE_MKDIR, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		return b.MkdirAll(ctx, "d", 0o755)
	}},
	"symlink": {wire.Type_TYPE_MKNOD, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		return b.Symlink(ctx, "f", "l")
	}},
	"mknod": {wire.Type_TYPE_MKNOD, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		return b.Mknod(ctx, "p", client.TypeFIFO, 0o600)
	}},
	"rename": {wire.Type_TYPE_RENAME, func(ctx context.Context, _ *client.Client, b *client.Buffer) error { return b.Rename(ctx, "f", "g") }},
	"noreplace": {wire.Type_TYPE_RENAME, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		return b.RenameNoReplace(ctx, "f", "g")
	}},
	"exchange": {wire.Type_TYPE_EXCHANGE, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		return b.ExchangeEntries(ctx, &client.Entry{Path: "f", Type: client.TypeFile, File: 1}, &client.Entry{Path: "d", Type: client.TypeDirectory, Dir: 2})
	}},
	"remove":    {wire.Type_TYPE_REMOVE, func(ctx context.Context, _ *client.Client, b *client.Buffer) error { return b.Remove(ctx, "f") }},
	"removeall": {wire.Type_TYPE_REMOVE, func(ctx context.Context, _ *client.Client, b *client.Buffer) error { return b.RemoveAll(ctx, "f") }},
	"removetree": {wire.Type_TYPE_REMOVE, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		_, err := b.RemoveTree(ctx, "f", nil)
		return err
	}},
	"setattr": {wire.Type_TYPE_SETATTR, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		_, err := b.SetAttr(ctx, "f", client.Attr{})
		return err
	}},
	"setxattr": {wire.Type_TYPE_SET_XATTR, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		return b.SetXattr(ctx, "f", "user.a", nil)
	}},
	"removexattr": {wire.Type_TYPE_SET_XATTR, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		return b.RemoveXattr(ctx, "f", "user.a")
	}},
	"exclusive": {wire.Type_TYPE_OPEN, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		f, err := b.OpenFile(ctx, "x", client.OpenOptions{Write: true, Create: true, Exclusive: true})
		if err == nil {
			f.Abort()
		}
		return err
	}},
	"recover": {wire.Type_TYPE_OPEN, func(ctx context.Context, _ *client.Client, b *client.Buffer) error { return b.Recover(ctx, "f") }},
	"buffer create": {wire.Type_TYPE_BUFFER_CREATE, func(ctx context.Context, c *client.Client, _ *client.Buffer) error {
		_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "new"})
		return err
	}},
	"buffer destroy": {wire.Type_TYPE_BUFFER_DESTROY, func(ctx context.Context, c *client.Client, _ *client.Buffer) error {
		return admin.DiscardBuffer(ctx, c, "b")
	}},
	"undrain": {wire.Type_TYPE_NODE_UNDRAIN, func(ctx context.Context, c *client.Client, _ *client.Buffer) error {
		return admin.UndrainNode(ctx, c, "n")
	}},
	"forget": {wire.Type_TYPE_NODE_FORGET, func(ctx context.Context, c *client.Client, _ *client.Buffer) error {
		_, err := admin.ForgetNode(ctx, c, "n")
		return err
	}},
	"due": {wire.Type_TYPE_LIFETIME_DUE, func(ctx context.Context, c *client.Client, _ *client.Buffer) error {
		_, err := admin.WarnDue(ctx, c, "job", time.Time{})
		return err
	}},
	"begin without a key": {wire.Type_TYPE_TXN_BEGIN, func(ctx context.Context, _ *client.Client, b *client.Buffer) error {
		_, err := b.Begin(ctx, client.TxnSpec{Destination: "d"})
		return err
	}},
}

// eachChange runs a test of each call, on a daemon with a file "f".
func eachChange(t *testing.T, retryFor time.Duration, run func(t *testing.T, f *fake, c *client.Client, typ wire.Type, call func(context.Context) error)) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c := f.connect(client.Options{RetryFor: retryFor})
			b := c.Buffer("b")
			check(t, b.WriteFile(context.Background(), "f", []byte("content"), 0))
			run(t, f, c, change.typ, func(ctx context.Context) error { return change.call(ctx, c, b) })
		})
	}
}

// carryOut carries a request out without answering it, if the fake can.
func (c *fakeConn) carryOut(h wire.Header, m proto.Message) {
	switch m.(type) {
	case *wire.Mkdir, *wire.Rename, *wire.Remove, *wire.Open, *wire.Buffer, *wire.BufferDestroy:
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		c.answer(h, m, nil)
	}
}

// TestChangeWithoutAnswer: a change that the daemon has carried out, and whose answer is
// lost, is not sent again, and its error is of unknown outcome.
func TestChangeWithoutAnswer(t *testing.T) {
	eachChange(t, 5*time.Second, func(t *testing.T, f *fake, c *client.Client, typ wire.Type, call func(context.Context) error) {
		before := f.count(typ)
		f.hook(func(c *fakeConn, h wire.Header, m proto.Message) bool {
			if h.Type == typ {
				c.carryOut(h, m)
				c.conn.Close()
			}
			return h.Type == typ
		})
		err := call(context.Background())
		if !errors.Is(err, client.ErrUnknownOutcome) || client.KindOf(err) != client.ErrUnavailable || !strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("the error is %v", err)
		}
		var e *client.Error
		if !errors.As(err, &e) || e.Remedy == "" {
			if _, remedy := e.Why(); remedy == "" {
				t.Errorf("no remedy: %v", err)
			}
		}
		if n := f.count(typ) - before; n != 1 {
			t.Errorf("the request was sent %d times", n)
		}
		f.hook(nil)
		must[client.Entry](t)(c.Buffer("b").Stat(context.Background(), "")) // the client continues
	})
}

// TestChangeNotSent: a change that finds the connection broken is sent, once, when there
// is a new one.
func TestChangeNotSent(t *testing.T) {
	eachChange(t, 5*time.Second, func(t *testing.T, f *fake, c *client.Client, typ wire.Type, call func(context.Context) error) {
		before := f.count(typ)
		var sent atomic.Int32
		f.hook(func(c *fakeConn, h wire.Header, m proto.Message) bool {
			if h.Type != typ || sent.Add(1) > 1 {
				return false
			}
			c.reply(h, nil, nil, bb.E(bb.Permission, "test", "", "it is seen"))
			return true
		})
		f.restart()
		if err := call(context.Background()); client.KindOf(err) != client.ErrPermission || errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("the error is %v", err)
		}
		if n := f.count(typ) - before; n != 1 {
			t.Errorf("the request was sent %d times", n)
		}
	})
}

// TestChangeWithoutDaemon: a change that no daemon accepts was not carried out, and its error does
// not leave that open.
func TestChangeWithoutDaemon(t *testing.T) {
	eachChange(t, 10*time.Millisecond, func(t *testing.T, f *fake, c *client.Client, typ wire.Type, call func(context.Context) error) {
		f.kill()
		if err := call(context.Background()); client.KindOf(err) != client.ErrUnavailable || errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestChangeCancelled: the context of a change ends while the daemon is at it.
func TestChangeCancelled(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	ctx, cancel := context.WithCancel(context.Background())
	f.hook(func(_ *fakeConn, h wire.Header, _ proto.Message) bool {
		if h.Type == wire.Type_TYPE_MKDIR {
			cancel()
		}
		return h.Type == wire.Type_TYPE_MKDIR
	})
	if err := b.Mkdir(ctx, "d", 0o755); client.KindOf(err) != client.ErrCancelled || !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if err := b.Mkdir(ctx, "d", 0o755); client.KindOf(err) != client.ErrCancelled {
		t.Errorf("the error is %v", err)
	}
}

// TestChangeRefused: a daemon's answer to a change shows whether it may have been
// carried out, of itself or by its kind.
func TestChangeRefused(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	var reply *wire.Error
	f.hook(func(c *fakeConn, h wire.Header, _ proto.Message) bool {
		if h.Type == wire.Type_TYPE_REMOVE {
			c.out.Send(h.Type, wire.FlagReply|wire.FlagError, h.Request, reply, nil)
		}
		return h.Type == wire.Type_TYPE_REMOVE
	})
	for _, c := range []struct {
		kind    bb.Kind
		outcome uint32
		unknown bool
	}{
		{bb.NotFound, 0, false},
		{bb.NotFound, 1, false},
		{bb.Busy, 0, false},
		{bb.Unavailable, 0, true}, // of an older daemon
		{bb.Unavailable, 1, false},
		{bb.Unavailable, 2, true},
		{bb.Internal, 0, true},
	} {
		reply = &wire.Error{Kind: uint32(c.kind), Outcome: c.outcome, Reason: "a reason"}
		err := b.Remove(context.Background(), "f")
		if client.KindOf(err) != c.kind || errors.Is(err, client.ErrUnknownOutcome) != c.unknown {
			t.Errorf("%+v: the error is %v", c, err)
		}
	}
}

// closeWrite ends the client's writes on the connection.
func (c *fakeConn) closeWrite() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	for id, fh := range c.handles {
		c.leave(fh)
		delete(c.handles, id)
	}
}

// TestCommitWithoutAnswer: a commit whose answer is lost is carried out once, or its error is that
// of an unknown outcome. Others' later changes of the file stay.
func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	const ours, theirs, old = "ours", "theirs", "old content"
	type others func(t *testing.T, b *client.Buffer)
	replace := func(text string) others {
		return func(t *testing.T, b *client.Buffer) {
			check(t, b.WriteFile(context.Background(), "x", []byte(text), 0))
		}
	}
	for name, c := range map[string]struct {
		exists  bool               // the file, before
		open    client.OpenOptions // besides Write
		applied bool
		others  others
		unknown bool
		want    string // content in the end; "": there is no file
	}{
		"new, applied":                      {false, client.OpenOptions{Create: true, Truncate: true}, true, nil, false, ours},
		"new, not applied":                  {false, client.OpenOptions{Create: true, Truncate: true}, false, nil, false, ours},
		"new, applied, replaced":            {false, client.OpenOptions{Create: true, Truncate: true}, true, replace(theirs), true, theirs},
		"new, applied, replaced by longer":  {false, client.OpenOptions{Create: true, Truncate: true}, true, replace(ours + theirs), true, ours + theirs},
		"new, applied, replaced by equal":   {false, client.OpenOptions{Create: true, Truncate: true}, true, replace(ours), false, ours},
		"new, not applied, made by another": {false, client.OpenOptions{Create: true, Truncate: true}, false, replace(theirs), true, theirs},
		"old, applied":                      {true, client.OpenOptions{Truncate: true}, true, nil, false, ours},
		"old, not applied":                  {true, client.OpenOptions{Truncate: true}, false, nil, false, ours},
		"old, applied, replaced":            {true, client.OpenOptions{Truncate: true}, true, replace(theirs), true, theirs},
		"old, not applied, replaced":        {true, client.OpenOptions{Truncate: true}, false, replace(theirs), true, theirs},
		"old, applied, removed": {true, client.OpenOptions{Truncate: true}, true, func(t *testing.T, b *client.Buffer) {
			check(t, b.Remove(context.Background(), "x"))
		}, true, ""},
		"exclusive, applied":           {false, client.OpenOptions{Create: true, Exclusive: true}, true, nil, false, ours},
		"exclusive, applied, replaced": {false, client.OpenOptions{Create: true, Exclusive: true}, true, replace(theirs), true, theirs},
	} {
		for _, closing := range []bool{true, false} {
			t.Run(strings.ReplaceAll(name, ",", "")+map[bool]string{true: " close", false: " sync"}[closing], func(t *testing.T) {
				ctx := context.Background()
				f := newFake(t)
				b, other := f.connect(client.Options{}).Buffer("b"), f.connect(client.Options{}).Buffer("b")
				if c.exists {
					check(t, b.WriteFile(ctx, "x", []byte(old), 0))
				}
				var lost atomic.Bool
				f.hook(func(conn *fakeConn, h wire.Header, m proto.Message) bool {
					commit, ok := m.(*wire.Commit)
					if !ok || commit.Abort || lost.Swap(true) {
						return false
					}
					if c.applied {
						f.mu.Lock()
						_, _, err := conn.commit(commit, conn.data)
						f.mu.Unlock()
						if err != nil {
							t.Errorf("commit: %v", err)
						}
					}
					conn.closeWrite()
					if c.others != nil {
						c.others(t, other)
					}
					conn.conn.Close()
					return true
				})
				c.open.Write = true
				w := must[*client.File](t)(b.OpenFile(ctx, "x", c.open))
				must[int](t)(w.Write([]byte(ours)))
				var err error
				if !closing {
					err = w.Sync()
				}
				if closing || err == nil {
					err = w.Close()
				}
				w.Abort()
				if errors.Is(err, client.ErrUnknownOutcome) != c.unknown || (err != nil) != c.unknown {
					t.Errorf("it ended with %v", err)
				}
				if c.want == "" {
					_, err := other.Stat(ctx, "x")
					wantKind(t, err, client.ErrNotFound)
				} else if got := string(readAll(t, other, "x")); got != c.want {
					t.Errorf("the file holds %q, want %q", got, c.want)
				}
			})
		}
	}
}

// TestRemoveTreeOfOlder: a daemon without pages has removed all when it answers.
func TestRemoveTreeOfOlder(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	asked := 0
	f.hook(func(c *fakeConn, h wire.Header, _ proto.Message) bool {
		if h.Type == wire.Type_TYPE_REMOVE {
			asked++
			c.out.Send(h.Type, wire.FlagReply, h.Request, &wire.Empty{}, nil)
		}
		return h.Type == wire.Type_TYPE_REMOVE
	})
	gone, err := b.RemoveTree(t.Context(), "x", func(now client.Removed) {
		if now != (client.Removed{}) {
			t.Errorf("told %+v", now)
		}
	})
	if err != nil || gone != (client.Removed{}) || asked != 1 {
		t.Errorf("removed %+v with %d requests (%v)", gone, asked, err)
	}
}

// TestLostCommitOverDamagedFile: a commit without an answer, over a file whose bytes are damaged, has an
// unknown outcome. The damage of the old bytes is no reason for the writer's error.
func TestLostCommitOverDamagedFile(t *testing.T) {
	f := newFake(t)
	c := f.connect(client.Options{RetryFor: 5 * time.Second})
	b := c.Buffer("b")
	check(t, b.WriteFile(context.Background(), "f", bytes.Repeat([]byte("first "), 20_000), 0))
	var broken atomic.Bool
	f.hook(func(c *fakeConn, _ wire.Header, m proto.Message) bool {
		commit, ok := m.(*wire.Commit)
		if !ok || !commit.Close || commit.Abort || !broken.CompareAndSwap(false, true) {
			return false
		}
		f.mu.Lock()
		f.entries["b/f"].Generation += 10 // another one has written meanwhile
		for _, r := range f.regions {
			if at := bytes.Index(r.mem, []byte("first")); at >= 0 {
				r.mem[at]++
			}
		}
		f.mu.Unlock()
		c.conn.Close()
		return true
	})
	err := b.WriteFile(context.Background(), "f", bytes.Repeat([]byte("other "), 20_000), 0)
	if !errors.Is(err, client.ErrUnknownOutcome) || client.KindOf(err) != client.ErrUnavailable {
		t.Errorf("the error is %v", err)
	}
	if _, err := b.ReadFile(context.Background(), "f"); !errors.Is(err, client.ErrChecksum) {
		t.Errorf("the file is not damaged: %v", err)
	}
}
