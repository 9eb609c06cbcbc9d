package bbd_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// touch sets the modification times of a step's files.
func (r *ruled) touch(when time.Time, step string) {
	r.t.Helper()
	for e, err := range r.b.Walk(r.t.Context(), step) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.IsDir() {
			continue
		}
		if _, err := r.b.SetAttr(r.t.Context(), e.Path, client.Attr{ModTime: &when}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// become waits for the states of the steps' first parts.
func (r *ruled) become(what, states string) {
	r.t.Helper()
	got := ""
	defer func() {
		if got != states {
			r.t.Errorf("%s: %s, want %s", what, got, states)
		}
	}()
	eventually(r.t, what, func() bool { got = fmt.Sprint(r.states()); return got == states })
}

// TestFlushRuleTimes: which step was completed after which is the order in which their files were closed, with any times
// from users, as cp -p and touch do, or a node whose clock is wrong.
func TestFlushRuleTimes(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 1000")
	hour := func(n int) time.Time { return time.Now().Add(time.Duration(n) * time.Hour) }
	for i := 7; i <= 9; i++ {
		r.save(fmt.Sprint("step-", i), random(1000))
	}
	r.touch(hour(2), "step-9")
	r.touch(hour(3), "step-7")
	r.save("step-4", random(1000)) // the job goes back
	r.touch(hour(-1), "step-4")
	r.become("a step that was written last, with old times", "map[step-4:dirty step-7:superseded step-8:superseded step-9:dirty]")
	r.save("step-5", random(1000))
	r.touch(hour(-2), "step-5")
	r.become("the next one", "map[step-4:superseded step-5:dirty step-7:superseded step-8:superseded step-9:dirty]")
	r.want([]string{"step-4", "step-7", "step-8"}, "map[step-5:3 step-9:3]")
}

// TestFlushRuleMoved: a rename gives a step no other place in the order. An old one under a new name supersedes nothing
// that was written after it. One that is written again becomes the newest of those below the next.
func TestFlushRuleMoved(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 1000")
	for i := 1; i <= 5; i++ {
		r.save(fmt.Sprint("step-", i), random(1000))
	}
	if err := r.b.Rename(t.Context(), "step-3", "step-12"); err != nil {
		t.Fatal(err)
	}
	r.become("an old step with a new name", "map[step-1:superseded step-12:dirty step-2:superseded step-4:superseded step-5:dirty]")
	for _, f := range []string{"part-0", ".metadata", "deep/part-1"} { // file by file, onto a step that is there
		if err := r.b.Rename(t.Context(), "step-1/"+f, "step-5/"+f); err != nil {
			t.Fatal(err)
		}
	}
	r.become("the files of an old one in the place of a newer one's", "map[step-12:dirty step-2:superseded step-4:dirty step-5:superseded]")
	r.save("step-2", random(1000))
	r.become("one that is written again", "map[step-12:dirty step-2:dirty step-4:dirty step-5:superseded]")
	r.save("step-6", random(1000))
	r.become("a new one", "map[step-12:dirty step-2:superseded step-4:superseded step-5:superseded step-6:dirty]")
}

// TestFlushRuleWriterGone: a step is not complete if the writer of one of its files left without a close.
func TestFlushRuleWriterGone(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{".metadata", "part-0"} {
		t.Run(cut, func(t *testing.T) {
			t.Parallel()
			r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 1000")
			r.save("step-1", random(1000))
			r.begin("step-2", random(1000))
			c := r.n.dial()
			f, err := c.Buffer("ckpt").Create(t.Context(), "step-2/"+cut)
			if err == nil {
				_, err = f.Write([]byte("half of it"))
			}
			if err == nil {
				err = f.Sync()
			}
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			if cut != ".metadata" {
				write(t, r.b, "step-2/.metadata", nil)
			}
			eventually(t, "the daemon has ended the file", func() bool {
				e, err := r.b.Stat(t.Context(), "step-2/"+cut)
				return err == nil && e.State == client.StateDirty
			})
			r.become("the step before stays", "map[step-1:dirty step-2:dirty]")
			r.want(nil, "map[step-1:3 step-2:3]")
		})
	}
}

// TestFlushRuleTxnOrder: transactions that are committed in another order than their files were written in lose nothing.
// The last written of the present ones stays, and so does the newest by number.
func TestFlushRuleTxnOrder(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 1000")
	prepare := func(i int) *client.Txn {
		x := begin(t, r.b, client.TxnSpec{Destination: fmt.Sprint("step-", i)})
		for _, name := range []string{"part-0", "checkpoint.json"} {
			dir := x.Path(name, "a")
			if err := r.b.MkdirAll(t.Context(), dir, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, r.b, dir+"/"+name, random(1000))
			adopt(t, x, name, "a")
		}
		return x
	}
	commit := func(x *client.Txn) {
		if _, err := x.Commit(t.Context(), client.CommitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	x1, x3, x2, x4 := prepare(1), prepare(3), prepare(2), prepare(4)
	commit(x3)
	r.become("the third alone", "map[step-3:dirty]")
	commit(x2)
	commit(x1)
	r.become("the second, which was written after the third", "map[step-1:superseded step-2:dirty step-3:dirty]")
	commit(x4)
	r.become("the fourth", "map[step-1:superseded step-2:superseded step-3:superseded step-4:dirty]")
	r.want([]string{"step-1", "step-2", "step-3"}, "map[step-4:2]")
}

// TestFlushRuleClocks: the order is the same for all nodes, though one has its clock an hour ahead of the others'.
func TestFlushRuleClocks(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	r := newRuled(t, nodes[2], admin.BufferSpec{}, "step-*/=every 1000")
	save := func(step string, ahead int) {
		t.Helper()
		if err := r.b.MkdirAll(t.Context(), step, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"part-0", "part-1", ".metadata"} {
			n := (ahead + i) % 2
			c := nodes[n].dial()
			write(t, c.Buffer("ckpt"), step+"/"+name, random(1000))
			when := time.Now().Add(time.Duration(n) * time.Hour) // the clock of the second node
			if _, err := c.Buffer("ckpt").SetAttr(t.Context(), step+"/"+name, client.Attr{ModTime: &when}); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
	}
	save("step-7", 0)
	save("step-8", 1) // its last file has the time that is ahead
	save("step-3", 0) // its last file has not
	r.become("a node that owns nothing", "map[step-3:dirty step-7:superseded step-8:dirty]")
	save("step-4", 0)
	want := "map[step-3:superseded step-4:dirty step-7:superseded step-8:dirty]"
	for _, n := range nodes {
		of := *r
		of.n, of.c = n, n.dial()
		of.b = of.c.Buffer("ckpt")
		of.become("each node", want)
	}
	r.want([]string{"step-3", "step-7"}, "map[step-4:3 step-8:3]")
}

// TestFlushRuleReaders: readers of a step, at the nodes of its files and at others, keep their open
// files when a node that needs memory drops the step. They get each byte, read before or not, until
// they close it.
func TestFlushRuleReaders(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	r := newRuled(t, nodes[0], admin.BufferSpec{}, "step-*/=every 1000")
	clients := make([]*client.Client, len(nodes))
	contents := map[string][]byte{}
	if err := r.b.MkdirAll(t.Context(), "step-1", 0o755); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		clients[i] = n.dial()
		path := fmt.Sprint("step-1/part-", i)
		contents[path] = random(5 << 20)
		write(t, clients[i].Buffer("ckpt"), path, contents[path])
	}
	write(t, clients[1].Buffer("ckpt"), "step-1/.metadata", nil)
	type reader struct {
		path string
		at   int
		file *client.File
	}
	var readers []reader
	for path := range contents {
		for i, c := range clients {
			f, err := c.Buffer("ckpt").Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if i != 1 { // one has read nothing of it yet
				if _, err := f.ReadAt(make([]byte, 1<<20), 1<<20); err != nil {
					t.Fatal(err)
				}
			}
			readers = append(readers, reader{path, i, f})
		}
	}
	for i := 2; i <= 12; i++ {
		r.save(fmt.Sprint("step-", i), random(6<<20))
	}
	eventually(t, "the step is dropped", func() bool {
		_, err := r.b.Stat(t.Context(), "step-1")
		return errors.Is(err, bb.NotFound)
	})
	for _, n := range nodes {
		n.press()
	}
	for _, x := range readers {
		if got := readAll(t, x.file, len(contents[x.path])); !bytes.Equal(got, contents[x.path]) {
			t.Errorf("of %s, node %d reads other bytes", x.path, x.at)
		}
	}
}
