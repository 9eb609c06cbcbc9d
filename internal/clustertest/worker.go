package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"slices"
	"syscall"
	"time"

	"forebay/client"
)

// Shared is the directory whose files all clients try to make.
const Shared = "shared"

// turn is how long all clients try to make the same file of Shared.
const turn = 50 * time.Millisecond

// worker is one client, in a process of its own, and its certain knowledge of the files of its
// directory. The path of an operation without a certain end is left alone for ever, since its
// effect may come late.
type worker struct {
	o     Options
	b     *client.Buffer
	node  string
	log   log
	rng   *rand.Rand
	seed  uint64
	files map[string]Version // of this client
	names int                // of this client, so far
	seen  []string           // others' paths
	err   error              // the journal could not be written
}

// work works until a signal ends it.
func work(o Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	file, err := os.OpenFile(o.Journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	w := &worker{
		o: o, log: log{file: file}, rng: rand.New(rand.NewPCG(o.Seed, 1)), seed: (o.Seed + 1) << 32, files: map[string]Version{},
	}
	c, err := w.begin(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return nil // stopped before anything could be done
	}
	defer c.Close()
	for ctx.Err() == nil && w.err == nil {
		w.step()
	}
	return w.err
}

// begin connects and makes the directories, however long the cluster needs for it.
func (w *worker) begin(ctx context.Context) (*client.Client, error) {
	var c *client.Client
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		try, cancel := context.WithTimeout(ctx, w.o.OpTimeout)
		var err error
		if c == nil {
			c, err = client.Dial(try, client.Options{Address: w.o.Address, KeyFile: w.o.KeyFile, Name: w.o.Name})
		}
		if err == nil {
			b := c.Buffer(w.o.Buffer)
			w.b, w.node = b, string(c.Server().Node)
			err = errors.Join(b.MkdirAll(try, w.o.Name, 0o755), b.MkdirAll(try, Shared, 0o755))
		}
		cancel()
		switch client.KindOf(err) {
		case 0:
			return c, nil
		case client.ErrUnavailable, client.ErrCancelled, client.ErrBusy:
		default:
			return nil, err
		}
	}
	if c != nil {
		c.Close()
	}
	return nil, nil
}

func (w *worker) step() {
	switch n := w.rng.IntN(100); {
	case n < 25:
		w.put()
	case n < 40:
		w.grow()
	case n < 50:
		w.create()
	case n < 60:
		w.rename()
	case n < 68:
		w.remove()
	case n < 75:
		w.list()
	default:
		w.read()
	}
}

// do writes one operation down and does it. It reports whether it was done for certain. It certainly was not, too, if
// the error is of a kind in refused.
func (w *worker) do(r *Record, f func(ctx context.Context) error, refused ...client.Kind) (done, certain bool) {
	r.Node, r.Deadline = w.node, w.o.OpTimeout
	ctx, cancel := context.WithTimeout(context.Background(), w.o.OpTimeout)
	defer cancel()
	if w.err = w.log.begin(r); w.err != nil {
		return false, false
	}
	err := f(ctx)
	r.ended(err)
	if err == nil && (r.Op == Put || r.Op == Create || r.Op == Sync) {
		r.Holders = w.holders(r.Path)
	}
	w.err = w.log.write(r)
	return err == nil, err == nil || slices.Contains(refused, client.KindOf(err))
}

// holders requests the holders of a path. A missing answer is no part of the operation.
func (w *worker) holders(path string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	e, _ := w.b.Stat(ctx, path)
	return holders(e)
}

func holders(e client.Entry) (names []string) {
	for _, h := range e.Holders {
		names = append(names, string(h))
	}
	return names
}

// settle notes the state of a path after an operation that was to make it v.
func (w *worker) settle(path string, v Version, done, certain bool) {
	switch {
	case !certain, done && v == Absent:
		delete(w.files, path)
	case done:
		w.files[path] = v
	}
}

func (w *worker) fresh() string {
	w.names++
	return fmt.Sprintf("%s/f%d", w.o.Name, w.names)
}

// own returns one of the client's files, or "" if it has none.
func (w *worker) own() string {
	if len(w.files) == 0 {
		return ""
	}
	names := make([]string, 0, len(w.files))
	for name := range w.files {
		names = append(names, name)
	}
	slices.Sort(names) // so that the seed alone decides
	return names[w.rng.IntN(len(names))]
}

// target is a new name as long as there are few files, else mostly one of them.
func (w *worker) target() string {
	if len(w.files) < w.o.Files && w.rng.IntN(3) > 0 || len(w.files) == 0 {
		return w.fresh()
	}
	return w.own()
}

func (w *worker) version() Version {
	w.seed++
	limits := []int{100, 8 << 10, 100 << 10, w.o.MaxSize}
	return Version{w.seed, MinSize + w.rng.IntN(max(1, limits[w.rng.IntN(len(limits))]-MinSize))}
}

func (w *worker) put() {
	name, v := w.target(), w.version()
	done, certain := w.do(&Record{Op: Put, Path: name, Version: v}, func(ctx context.Context) error {
		f, err := w.b.Create(ctx, name)
		if err != nil {
			return err
		}
		return fill(f, v)
	})
	w.settle(name, v, done, certain)
}

func fill(f *client.File, v Version) error {
	if _, err := f.Write(Content(v.Seed, v.Size)); err != nil {
		f.Abort()
		return err
	}
	return f.Close()
}

// grow adds to a file, or begins one, in steps that are synced. Each of them is an operation.
// Opening and closing belong to the first and the last.
func (w *worker) grow() {
	name := w.target()
	v, there := w.files[name]
	if !there {
		v = Version{Seed: w.version().Seed}
	}
	if v.Size > w.o.MaxSize {
		return
	}
	var f *client.File
	// The file keeps the context of its opening, so that all steps have it.
	ctx, cancel := context.WithTimeout(context.Background(), w.o.OpTimeout)
	defer cancel()
	steps := 1 + w.rng.IntN(4)
	for i := range steps {
		was := v.Size
		v.Size += MinSize + w.rng.IntN(w.o.MaxSize/4)
		done, certain := w.do(&Record{Op: Sync, Path: name, Version: v}, func(context.Context) (err error) {
			if f == nil {
				if f, err = w.b.OpenFile(ctx, name, client.OpenOptions{Write: true, Create: true, Append: true}); err != nil {
					return err
				}
			}
			if _, err := f.Write(Content(v.Seed, v.Size)[was:]); err != nil {
				return err
			}
			if i == steps-1 {
				return f.Close()
			}
			return f.Sync()
		})
		w.settle(name, v, done, certain)
		if !done {
			break
		}
	}
	if f != nil {
		f.Abort()
	}
}

// create tries to make the file of Shared that all try to make now.
func (w *worker) create() {
	v := w.version()
	r := &Record{Op: Create, Path: fmt.Sprintf("%s/t%d", Shared, Now()/int64(turn)), Version: v}
	w.do(r, func(ctx context.Context) error {
		f, err := w.b.OpenFile(ctx, r.Path, client.OpenOptions{Write: true, Create: true, Exclusive: true})
		if err != nil {
			return err
		}
		return fill(f, v)
	})
}

func (w *worker) rename() {
	from := w.own()
	if from == "" {
		return
	}
	to := w.target()
	if from == to {
		to = w.fresh()
	}
	v := w.files[from]
	done, certain := w.do(&Record{Op: Rename, Path: from, To: to, Version: v}, func(ctx context.Context) error { return w.b.Rename(ctx, from, to) })
	w.settle(from, Absent, done, certain)
	w.settle(to, v, done, certain)
}

func (w *worker) remove() {
	name := w.own()
	if name == "" {
		return
	}
	done, certain := w.do(&Record{Op: Remove, Path: name}, func(ctx context.Context) error { return w.b.Remove(ctx, name) })
	w.settle(name, Absent, done, certain)
}

// read reads a file of another client, or of its own.
func (w *worker) read() {
	name := w.own()
	if len(w.seen) > 0 && (name == "" || w.rng.IntN(4) > 0) {
		name = w.seen[w.rng.IntN(len(w.seen))]
	}
	if name == "" {
		return
	}
	r := &Record{Op: Read, Path: name}
	w.do(r, func(ctx context.Context) error {
		p, err := w.b.ReadFile(ctx, name)
		if err == nil {
			r.Version, err = identify(name, p)
		}
		return err
	})
}

// identify is Identify, but unknown bytes are an error of the kind that a client should have had
// for them.
func identify(name string, p []byte) (Version, error) {
	v, err := Identify(p)
	if err != nil {
		return v, &client.Error{Kind: client.ErrChecksum, Op: "identify", Path: name, Err: err}
	}
	return v, nil
}

func (w *worker) list() {
	dir := Shared
	if len(w.o.Peers) > 0 && w.rng.IntN(4) > 0 {
		dir = w.o.Peers[w.rng.IntN(len(w.o.Peers))]
	}
	r := &Record{Op: List, Path: dir}
	done, _ := w.do(r, func(ctx context.Context) error {
		for e, err := range w.b.ReadDir(ctx, dir) {
			if err != nil {
				return err
			}
			r.Names = append(r.Names, e.Name)
		}
		return nil
	})
	if !done {
		return
	}
	w.seen = slices.DeleteFunc(w.seen, func(name string) bool { return path.Dir(name) == dir })
	for _, name := range r.Names {
		w.seen = append(w.seen, dir+"/"+name)
	}
}
