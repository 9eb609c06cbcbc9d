package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"forebay/client"
	"forebay/internal/wire"
)

func eachAccess(t *testing.T, run func(t *testing.T, f *fake, b *client.Buffer)) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inlined=%v", inline), func(t *testing.T) {
			f := newFake(t)
			f.inlineOnly = inline
			run(t, f, f.connect(client.Options{}).Buffer("b"))
		})
	}
}

func TestWriteThenRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		for _, n := range []int{0, 1, 100, 32 << 10, 32<<10 + 1, 100_000, 1 << 20, 3<<20 + 7, 40 << 20} {
			data := random(n)
			name := fmt.Sprintf("f%d", n)
			check(t, b.WriteFile(ctx, name, data, 0))
			if got := readAll(t, b, name); !bytes.Equal(got, data) {
				t.Fatalf("%d bytes: what is read differs", n)
			}
			if got := must[[]byte](t)(b.ReadFile(ctx, name)); !bytes.Equal(got, data) {
				t.Fatalf("%d bytes: ReadFile differs", n)
			}
			if e := must[client.Entry](t)(b.Stat(ctx, name)); e.Size != int64(n) {
				t.Fatalf("size is %d, want %d", e.Size, n)
			}
		}
	})
}

// TestSmallFileIsOneMessage: content up to the threshold needs no lease.
func TestSmallFileIsOneMessage(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	check(t, b.WriteFile(context.Background(), "x", random(4096), 0))
	if n := f.count(wire.Type_TYPE_LEASE); n != 0 {
		t.Errorf("%d leases were asked for", n)
	}
	if n := f.count(wire.Type_TYPE_COMMIT); n != 1 {
		t.Errorf("%d commits were sent", n)
	}
}

// TestStreamMakesLongExtents: a large file becomes extents of full size, and leases grow.
func TestStreamMakesLongExtents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	w := must[*client.File](t)(b.Create(ctx, "big"))
	chunk := random(100_000)
	for range 400 {
		must[int](t)(w.Write(chunk))
	}
	check(t, w.Close())
	e := f.entries["b/big"]
	if n := len(e.visible); n > 40+8 {
		t.Errorf("40 MB are in %d extents", n)
	}
	if n := f.count(wire.Type_TYPE_LEASE); n > 10 {
		t.Errorf("%d leases were asked for", n)
	}
	if got := readAll(t, b, "big"); !bytes.Equal(got, bytes.Repeat(chunk, 400)) {
		t.Error("what is read differs")
	}
}

// TestManyFilesShareLeases writes several files at once, of all sizes, from goroutines.
func TestManyFilesShareLeases(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), 1))
				for i := range 20 {
					name, data := fmt.Sprintf("f%d-%d", g, i), random(rnd.IntN(300_000))
					w, err := b.Create(ctx, name)
					if err != nil {
						t.Error(err)
						return
					}
					for p := data; len(p) > 0; {
						n := min(len(p), 1+rnd.IntN(50_000))
						if _, err := w.Write(p[:n]); err != nil {
							t.Error(err)
						}
						if rnd.IntN(8) == 0 {
							if err := w.Sync(); err != nil {
								t.Error(err)
							}
						}
						p = p[n:]
					}
					if err := w.Close(); err != nil {
						t.Error(err)
					}
					if got, err := b.ReadFile(ctx, name); err != nil || !bytes.Equal(got, data) {
						t.Errorf("%s differs (%v)", name, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestModel compares a file under random operations with a slice of bytes.
func TestModel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		for seed := range uint64(6) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			name := fmt.Sprintf("m%d", seed)
			w := must[*client.File](t)(b.OpenFile(ctx, name, client.OpenOptions{Write: true, Create: true}))
			var model []byte
			put := func(p []byte, off int) {
				if off+len(p) > len(model) {
					model = append(model, make([]byte, off+len(p)-len(model))...)
				}
				copy(model[off:], p)
			}
			for range 300 {
				p, off := random(rnd.IntN(20_000)), rnd.IntN(400_000)
				switch rnd.IntN(9) {
				case 0, 1:
					must[int](t)(w.WriteAt(p, int64(off)))
					if len(p) > 0 {
						put(p, off)
					}
				case 2, 3:
					pos := int(must[int64](t)(w.Seek(0, io.SeekCurrent)))
					if rnd.IntN(2) == 0 {
						must[int](t)(w.Write(p))
					} else {
						must[int](t)(w.WriteString(string(p)))
					}
					if len(p) > 0 {
						put(p, pos)
					}
				case 4:
					must[int64](t)(w.Seek(int64(off), io.SeekStart))
				case 5:
					pos := int(must[int64](t)(w.Seek(0, io.SeekCurrent)))
					mem := must[[]byte](t)(w.Reserve(len(p) + 10))
					k := copy(mem, p)
					if rnd.IntN(3) == 0 {
						must[int](t)(w.WriteAt([]byte("between"), int64(off)))
						put([]byte("between"), off)
					}
					check(t, w.Publish(k))
					if k > 0 {
						put(p, pos)
					}
				case 6:
					check(t, w.Sync())
				case 7:
					got := make([]byte, 30_000)
					n, err := w.ReadAt(got, int64(off))
					if err != nil && err != io.EOF {
						t.Fatal(err)
					}
					want := model[min(off, len(model)):min(off+len(got), len(model))]
					if !bytes.Equal(got[:n], want) {
						t.Fatalf("seed %d: ReadAt(%d) differs", seed, off)
					}
				case 8:
					pos := int(must[int64](t)(w.Seek(0, io.SeekCurrent)))
					n := must[int64](t)(w.ReadFrom(bytes.NewReader(p)))
					if int(n) != len(p) {
						t.Fatalf("ReadFrom took %d of %d", n, len(p))
					}
					if n > 0 {
						put(p, pos)
					}
				}
				if size := must[int64](t)(w.Size()); size != int64(len(model)) {
					t.Fatalf("seed %d: size is %d, want %d", seed, size, len(model))
				}
			}
			check(t, w.Close())
			if got := readAll(t, b, name); !bytes.Equal(got, model) {
				t.Fatalf("seed %d: content differs", seed)
			}
		}
	})
}

func TestAppend(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		check(t, b.WriteFile(ctx, "log", []byte("one "), 0))
		w := must[*client.File](t)(b.OpenFile(ctx, "log", client.OpenOptions{Write: true, Append: true}))
		must[int](t)(w.WriteString("two "))
		check(t, w.Sync())
		must[int64](t)(w.Seek(0, io.SeekStart))
		must[int](t)(w.WriteString("three"))
		_, err := w.WriteAt([]byte("x"), 0)
		wantKind(t, err, client.ErrInvalid)
		check(t, w.Close())
		if got := string(readAll(t, b, "log")); got != "one two three" {
			t.Errorf("content is %q", got)
		}
	})
}

func TestHolesReadAsZeros(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		w := must[*client.File](t)(b.Create(ctx, "h"))
		must[int](t)(w.WriteAt([]byte("end"), 3<<20))
		check(t, w.Close())
		want := append(make([]byte, 3<<20), "end"...)
		if got := readAll(t, b, "h"); !bytes.Equal(got, want) {
			t.Error("content differs")
		}
		r := must[*client.File](t)(b.Open(ctx, "h"))
		defer r.Close()
		var out bytes.Buffer
		must[int64](t)(r.WriteTo(&out))
		if !bytes.Equal(out.Bytes(), want) {
			t.Error("WriteTo differs")
		}
	})
}

func TestMap(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		data := random(5 << 20)
		check(t, b.WriteFile(ctx, "x", data, 0))
		r := must[*client.File](t)(b.Open(ctx, "x"))
		m := must[*client.Mapping](t)(r.Map(1000, 4<<20))
		check(t, r.Close())
		if got := bytes.Join(m.Slices(), nil); !bytes.Equal(got, data[1000:1000+4<<20]) || m.Len() != 4<<20 {
			t.Error("the mapping differs")
		}
		check(t, m.Verify())
		check(t, m.Release())
		check(t, m.Release())
		eventually(t, "pins are left", func() bool {
			_, _ = b.Stat(ctx, "x") // reads bytes that are on the way
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.pins == 0
		})
	})
}

// TestDamageIsFound flips one byte in a region. No read that verifies returns it.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	data := random(3 << 20)
	check(t, b.WriteFile(ctx, "x", data, 0))
	visible := f.entries["b/x"].visible
	e := visible[len(visible)-1]
	f.region(e.Region).mem[e.Offset+77] ^= 1

	r := must[*client.File](t)(b.Open(ctx, "x"))
	defer r.Close()
	var got []byte
	p := make([]byte, 100_000)
	for {
		n, err := r.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			wantKind(t, err, client.ErrChecksum)
			if !strings.Contains(err.Error(), "bb://b/x") || !strings.Contains(err.Error(), fmt.Sprint(e.FileOffset)) {
				t.Errorf("the error does not name the file and range: %v", err)
			}
			break
		}
	}
	if !bytes.Equal(got, data[:len(got)]) || int64(len(got)) > e.FileOffset {
		t.Errorf("%d bytes came, not all of them right", len(got))
	}
	_, err := r.WriteTo(io.Discard)
	wantKind(t, err, client.ErrChecksum)
	_, err = r.ReadAt(make([]byte, e.Length), e.FileOffset) // a whole extent, in one pass
	wantKind(t, err, client.ErrChecksum)
	m := must[*client.Mapping](t)(r.Map(0, 3<<20))
	wantKind(t, m.Verify(), client.ErrChecksum)
	check(t, m.Release())

	all := f.connect(client.Options{VerifyAll: true}).Buffer("b")
	r2 := must[*client.File](t)(all.Open(ctx, "x"))
	defer r2.Close()
	_, err = r2.ReadAt(p[:10], e.FileOffset+5000)
	wantKind(t, err, client.ErrChecksum)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(client.Options{})
	b := c.Buffer("b")

	_, err := b.Open(ctx, "missing")
	wantKind(t, err, client.ErrNotFound)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the standard library's error does not match")
	}
	_, err = b.OpenFile(ctx, "missing", client.OpenOptions{Write: true})
	wantKind(t, err, client.ErrNotFound)

	// Create does not wait. The error comes at the first need.
	w := must[*client.File](t)(c.Buffer("none").Create(ctx, "x"))
	must[int](t)(w.Write([]byte("x")))
	wantKind(t, w.Sync(), client.ErrNotFound)
	wantKind(t, w.Close(), client.ErrNotFound)
	wantKind(t, w.Close(), client.ErrInvalid)

	check(t, b.WriteFile(ctx, "there", nil, 0))
	_, err = b.OpenFile(ctx, "there", client.OpenOptions{Write: true, Create: true, Exclusive: true})
	wantKind(t, err, client.ErrExists)

	for _, path := range []string{"../x", "a/../../x", "a\x00b", strings.Repeat("n", 300), strings.Repeat("d/", 1000)} {
		_, err = b.Open(ctx, path)
		wantKind(t, err, client.ErrInvalid)
	}
	_, err = c.Buffer("No Such").Open(ctx, "x")
	wantKind(t, err, client.ErrInvalid)

	r := must[*client.File](t)(b.Open(ctx, "there"))
	_, err = r.Write([]byte("x"))
	wantKind(t, err, client.ErrPermission)
	_, err = r.ReadAt(make([]byte, 1), -1)
	wantKind(t, err, client.ErrInvalid)
	_, err = r.Seek(-1, io.SeekStart)
	wantKind(t, err, client.ErrInvalid)
	check(t, r.Close())
	_, err = r.Read(make([]byte, 1))
	if !errors.Is(err, fs.ErrClosed) {
		t.Errorf("reading a closed file: %v", err)
	}

	w = must[*client.File](t)(b.Create(ctx, "w"))
	_, err = w.WriteAt([]byte("x"), 1<<60)
	wantKind(t, err, client.ErrInvalid)
	wantKind(t, w.Publish(1), client.ErrInvalid)
	_, err = w.Reserve(client.MaxReserve + 1)
	wantKind(t, err, client.ErrInvalid)
	check(t, w.Abort())
	_, err = b.Stat(ctx, "w")
	wantKind(t, err, client.ErrNotFound)
}

// TestAbortForgets: uncommitted bytes never become part of the file.
func TestAbortForgets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		check(t, b.WriteFile(ctx, "x", []byte("old"), 0))
		w := must[*client.File](t)(b.Create(ctx, "x"))
		must[int](t)(w.Write(random(200_000)))
		check(t, w.Abort())
		if got := string(readAll(t, b, "x")); got != "old" {
			t.Errorf("content is %d bytes", len(got))
		}
	})
}

func TestFS(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	check(t, b.MkdirAll(ctx, "dir/sub", 0o755))
	check(t, b.WriteFile(ctx, "dir/small", []byte("hello"), 0))
	check(t, b.WriteFile(ctx, "dir/sub/large", random(100_000), 0))
	for i := range 10 {
		check(t, b.WriteFile(ctx, fmt.Sprintf("n%d", i), []byte{byte(i)}, 0))
	}
	check(t, fstest.TestFS(b.FS(ctx), "dir/small", "dir/sub/large", "n3"))
	var paths []string
	for e, err := range b.Walk(ctx, "dir") {
		check(t, err)
		paths = append(paths, e.Path)
	}
	if got := strings.Join(paths, " "); got != "dir dir/small dir/sub dir/sub/large" {
		t.Errorf("Walk yields %s", got)
	}
}

func TestSteadyPathAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	w := must[*client.File](t)(b.Create(ctx, "x"))
	p := random(1 << 20)
	if n := fewestAllocs(func() { must[int](t)(w.Write(p)) }); n != 0 {
		t.Errorf("a write of 1 MiB allocates %v times", n)
	}
	check(t, w.Close())
	r := must[*client.File](t)(b.Open(ctx, "x"))
	defer r.Close()
	if n := fewestAllocs(func() { must[int](t)(r.Read(p)) }); n != 0 {
		t.Errorf("a read of 1 MiB allocates %v times", n)
	}
}

// fewestAllocs leaves out the rounds in which a lease or a window was requested, and the fake
// allocated memory for its answer.
func fewestAllocs(run func()) float64 {
	fewest := testing.AllocsPerRun(4, run)
	for range 15 {
		fewest = min(fewest, testing.AllocsPerRun(4, run))
	}
	return fewest
}
