package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/wire"
)

// each way in which a session ends.
var breaks = map[string]func(*fake){"cut": (*fake).cut, "restart": (*fake).restart}

func eachBreak(t *testing.T, run func(t *testing.T, f *fake, b *client.Buffer, end func())) {
	for name, end := range breaks {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/inlined=%v", name, inline), func(t *testing.T) {
				f := newFake(t)
				f.inlineOnly = inline
				c := f.connect(client.Options{RetryFor: 5 * time.Second})
				run(t, f, c.Buffer("b"), func() { end(f) })
			})
		}
	}
}

// TestWriterResumes: bytes that were uncommitted when the session ended are
// written again, once.
func TestWriterResumes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachBreak(t, func(t *testing.T, f *fake, b *client.Buffer, end func()) {
		for _, o := range []client.OpenOptions{
			{Write: true, Create: true, Truncate: true},
			{Write: true, Create: true, Exclusive: true},
			{Write: true, Create: true, Append: true},
		} {
			name := fmt.Sprintf("x%v%v", o.Exclusive, o.Append)
			data := random(5<<20 + 9)
			w := must[*client.File](t)(b.OpenFile(ctx, name, o))
			end()
			must[int](t)(w.Write(data[:1000]))
			end()
			must[int](t)(w.Write(data[1000:200_000]))
			must[int](t)(w.Write(data[200_000 : 2<<20]))
			end()
			check(t, w.Sync())
			must[int](t)(w.Write(data[2<<20 : 3<<20]))
			end()
			got := make([]byte, 3<<20)
			must[int](t)(w.ReadAt(got, 0))
			if !bytes.Equal(got, data[:3<<20]) {
				t.Error("the writer does not read what it wrote")
			}
			mem := must[[]byte](t)(w.Reserve(1 << 20))
			copy(mem, data[3<<20:4<<20])
			end()
			check(t, w.Publish(1<<20))
			must[int](t)(w.Write(data[4<<20:]))
			end()
			check(t, w.Close())
			if got := readAll(t, b, name); !bytes.Equal(got, data) {
				t.Errorf("%+v: content differs", o)
			}
		}
	})
}

// TestLostBytesAreReported: others wrote where the uncommitted bytes lay. The writer must report
// that, and never commit the bytes there now.
func TestLostBytesAreReported(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	f.spoil = true
	b := f.connect(client.Options{}).Buffer("b")
	w := must[*client.File](t)(b.Create(ctx, "x"))
	must[int](t)(w.Write(random(300_000)))
	f.restart()
	wantKind(t, w.Sync(), client.ErrLost)
	wantKind(t, w.Close(), client.ErrLost)
	_, err := b.Stat(ctx, "x")
	wantKind(t, err, client.ErrNotFound)
}

// TestLostReply: commits whose replies are lost, before or after they were carried
// out, are repeated so that they are there once.
func TestLostReply(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, applied := range []bool{false, true} {
		for _, closing := range []bool{false, true} {
			for _, size := range []int{100, 500_000} {
				t.Run(fmt.Sprintf("applied=%v/closing=%v/%d", applied, closing, size), func(t *testing.T) {
					f := newFake(t)
					b := f.connect(client.Options{}).Buffer("b")
					var lose atomic.Int32
					f.onRequest = func(c *fakeConn, h wire.Header, m proto.Message) bool {
						commit, ok := m.(*wire.Commit)
						if !ok || commit.Close != closing || lose.Add(-1) != 0 {
							return false
						}
						if applied {
							f.mu.Lock()
							_, _, err := c.commit(commit, nil)
							f.mu.Unlock()
							if err != nil {
								t.Errorf("commit: %v", err)
							}
						}
						c.conn.Close()
						return true
					}
					data := random(2 * size)
					w := must[*client.File](t)(b.Create(ctx, "x"))
					must[int](t)(w.Write(data[:size]))
					check(t, w.Sync()) // from now on, bytes are in leases
					must[int](t)(w.Write(data[size:]))
					lose.Store(1)
					if !closing {
						check(t, w.Sync())
					}
					check(t, w.Close())
					if got := readAll(t, b, "x"); !bytes.Equal(got, data) {
						t.Error("content differs")
					}
					if lose.Load() > 0 {
						t.Error("no reply was lost")
					}
				})
			}
		}
	}
}

func TestReaderResumes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachBreak(t, func(t *testing.T, f *fake, b *client.Buffer, end func()) {
		data := random(3 << 20)
		check(t, b.WriteFile(ctx, "x", data, 0))
		r := must[*client.File](t)(b.Open(ctx, "x"))
		defer r.Close()
		got := make([]byte, len(data))
		for off := 0; off < len(data); off += 1 << 18 {
			end()
			must[int](t)(r.ReadAt(got[off:off+1<<18], int64(off)))
		}
		if !bytes.Equal(got, data) {
			t.Error("content differs")
		}
		end()
		check(t, b.WriteFile(ctx, "x", random(100), 0))
		_, err := r.ReadAt(got[:100_000], 0)
		wantKind(t, err, client.ErrUnavailable)
	})
}

// TestNoDaemonForLong: an operation ends after RetryFor, or when its context ends.
func TestNoDaemonForLong(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.connect(client.Options{RetryFor: 30 * time.Millisecond})
	slow := f.connect(client.Options{})
	f.kill()
	_, err := c.Buffer("b").Stat(context.Background(), "")
	wantKind(t, err, client.ErrUnavailable)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, err = slow.Buffer("b").Stat(ctx, "")
	wantKind(t, err, client.ErrCancelled)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the deadline is not named: %v", err)
	}
	f.start()
	must[client.Entry](t)(slow.Buffer("b").Stat(context.Background(), ""))
}

// TestBreaksUnderLoad cuts connections and restarts the daemon while several files are
// written and read.
func TestBreaksUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(client.Options{RetryFor: 20 * time.Second})
	b := c.Buffer("b")
	stop := make(chan struct{})
	var breaker, wg sync.WaitGroup
	breaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
			}
			if rand.IntN(2) == 0 {
				f.cut()
			} else {
				f.restart()
			}
		}
	})
	for g := range 4 {
		wg.Go(func() {
			for i := range 15 {
				name, data := fmt.Sprintf("f%d-%d", g, i), random(rand.IntN(400_000))
				w, err := b.Create(ctx, name)
				if err != nil {
					t.Error(err)
					return
				}
				for p := data; len(p) > 0; {
					n := min(len(p), 1+rand.IntN(60_000))
					if _, err := w.Write(p[:n]); err != nil {
						t.Errorf("write %s: %v", name, err)
						return
					}
					if p = p[n:]; rand.IntN(4) == 0 {
						if err := w.Sync(); err != nil {
							t.Errorf("sync %s: %v", name, err)
							return
						}
					}
				}
				if err := w.Close(); err != nil {
					t.Errorf("close %s: %v", name, err)
					return
				}
				r, err := b.Open(ctx, name)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s differs (%v)", name, err)
				}
				r.Close()
			}
		})
	}
	wg.Wait()
	close(stop)
	breaker.Wait()
}
