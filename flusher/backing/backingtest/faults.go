package backingtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/powertest"
)

// FaultHarness opens stores of a directory for Faults and Errnos.
type FaultHarness struct {
	// Dir makes the directory that is mounted on, which the user of stores may pass. nil means t.TempDir.
	Dir func(t *testing.T) string
	// Open opens the store of a directory anew. It keeps no state of it.
	Open func(ctx context.Context, dir string, owner backing.Owner) (backing.Store, error)
	// UID is the owner of a store's directory, and of the files that are put into it.
	UID uint32
	// Attrs are the attributes of files that are put.
	Attrs *backing.Attrs
	// Large is the size of a file that is written in another way, or 0 if there is none.
	Large int64
	// Waits is whether puts and reads of a process that cannot be ended return no earlier than the file system.
	// Else an operation may return, or wait.
	Waits bool
	// Settle returns when no call of an operation that has returned is in the file system any more.
	Settle func()
	// Kill ends the process that calls the file system, if that is not this one. It meets each call
	// once. Nil: it is this one.
	Kill func(t *testing.T, s backing.Store)
	// More are operations of this store alone, which change nothing.
	More []FaultRead
	// Brief leaves away the errnos other than EIO in Faults. The code that distinguishes them is
	// tested elsewhere.
	Brief bool
	// Min is how many cases there are at least.
	Min int
}

// FaultRead is an operation that changes nothing.
type FaultRead struct {
	Name string
	Do   func(ctx context.Context, s backing.Store, dir string) error
}

// tree maps final names to contents.
type tree map[string][]byte

// faultOp is an operation of the store, with the files before and after it.
type faultOp struct {
	name          string
	large         bool
	before, after tree
	// moves names the files that must never be without both names.
	moves map[string]string
	// waits: the operation cannot return before the file system does.
	waits func(call string) bool
	do    func(ctx context.Context, s backing.Store) error
	in    func(ctx context.Context, s backing.Store, dir string) error // of FaultHarness.More, in place of do
}

func never(string) bool  { return false }
func always(string) bool { return true }

var faultOwner = backing.Owner{Instance: 7, Life: 1}

func putOp(name string, before, after tree, attrs *backing.Attrs) faultOp {
	return faultOp{name: name, before: before, after: after, waits: always, do: func(ctx context.Context, s backing.Store) error {
		for name, p := range after {
			if !bytes.Equal(before[name], p) {
				o, err := s.Put(ctx, name, backing.NewBytes(p), backing.PutOptions{Attrs: attrs})
				if err == nil && o.Size != int64(len(p)) {
					err = fmt.Errorf("the put says %d bytes", o.Size)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func renameOp(name, from, to string, before, after tree, moves map[string]string) faultOp {
	return faultOp{name: name, before: before, after: after, moves: moves, waits: never, do: func(ctx context.Context, s backing.Store) error {
		return s.Rename(ctx, from, to)
	}}
}

// versionsOf finds the versions of some and of other, wherever an earlier attempt has left them.
func versionsOf(ctx context.Context, s backing.Store, names ...string) (is, replaces backing.Version, err error) {
	for _, name := range names {
		o, err := s.Stat(ctx, name)
		switch {
		case bb.KindOf(err) == bb.NotFound:
		case err != nil:
			return is, replaces, err
		case o.Size == int64(len(some)):
			is = o.Version()
		default:
			replaces = o.Version()
		}
	}
	return is, replaces, nil
}

// renameIfOp is renameOp of a version.
func renameIfOp(name, from, to string, before, after tree, moves map[string]string) faultOp {
	return faultOp{name: name, before: before, after: after, moves: moves, waits: never, do: func(ctx context.Context, s backing.Store) error {
		is, replaces, err := versionsOf(ctx, s, from, to)
		if err != nil {
			return err
		}
		return s.RenameIf(ctx, from, to, is, replaces)
	}}
}

// readOp is an operation that leaves all as it is.
func readOp(name string, waits func(string) bool, do func(ctx context.Context, s backing.Store) error) faultOp {
	return faultOp{name: name, before: readTree, after: readTree, waits: waits, do: do}
}

var (
	some, other = Data(3000, 1), Data(2000, 2)
	readTree    = tree{"f": some, "d/e/g": other}
	abandoned   = path.Join("d", backing.Owner{Instance: 7, Life: 99}.TempName())
)

func (h *FaultHarness) ops() []faultOp {
	ops := []faultOp{
		putOp("put", tree{}, tree{"f": some}, h.Attrs),
		putOp("put into new directories", tree{}, tree{"d/e/f": some}, h.Attrs),
		putOp("put over an object", tree{"f": other}, tree{"f": some}, h.Attrs),
		renameOp("rename into a new directory", "f", "d/g", tree{"f": some}, tree{"d/g": some}, map[string]string{"f": "d/g"}),
		renameOp("rename over an object", "f", "d/g", tree{"f": some, "d/g": other}, tree{"d/g": some}, map[string]string{"f": "d/g"}),
		renameOp("rename of a tree into another", "a", "b",
			tree{"a/s/g": other, "b/s/i": some},
			tree{"b/s/g": other, "b/s/i": some},
			map[string]string{"a/s/g": "b/s/g"}),
		{name: "remove", before: tree{"d/f": some, "d/g": other}, after: tree{"d/g": other}, waits: never, do: func(ctx context.Context, s backing.Store) error {
			return s.Remove(ctx, "d/f")
		}},
		renameIfOp("rename a version into a new directory", "f", "d/g", tree{"f": some}, tree{"d/g": some}, map[string]string{"f": "d/g"}),
		renameIfOp("rename a version over an object", "f", "d/g", tree{"f": some, "d/g": other}, tree{"d/g": some}, map[string]string{"f": "d/g"}),
		{name: "remove a version", before: tree{"d/f": some, "d/g": other}, after: tree{"d/g": other}, waits: never, do: func(ctx context.Context, s backing.Store) error {
			is, _, err := versionsOf(ctx, s, "d/f")
			if err != nil {
				return err
			}
			return s.RemoveIf(ctx, "d/f", is)
		}},
		{name: "remove of a tree", before: tree{"t/f": some, "t/s/g": other, "h": other}, after: tree{"h": other}, waits: never, do: func(ctx context.Context, s backing.Store) error {
			return s.RemoveTree(ctx, "t")
		}},
		{name: "remove of everything", before: tree{"t/f": some, "h": other}, after: tree{}, waits: never, do: func(ctx context.Context, s backing.Store) error {
			return s.RemoveTree(ctx, "")
		}},
		readOp("get", func(call string) bool { return strings.HasPrefix(call, "read ") || strings.HasPrefix(call, "flush ") }, func(ctx context.Context, s backing.Store) error {
			r, err := s.Get(ctx, "d/e/g", 100, 1500)
			if err != nil {
				return err
			}
			p, err := io.ReadAll(r)
			if err == nil && !bytes.Equal(p, other[100:1600]) {
				return fmt.Errorf("it reads %d bytes that are not the object's", len(p))
			}
			return errors.Join(err, r.Close())
		}),
		readOp("stat", never, func(ctx context.Context, s backing.Store) error {
			o, err := s.Stat(ctx, "d/e/g")
			if err == nil && (o.Name != "d/e/g" || o.Size != int64(len(other))) {
				return fmt.Errorf("it says %+v", o)
			}
			return err
		}),
		readOp("list", never, func(ctx context.Context, s backing.Store) error {
			var names []string
			err := s.List(ctx, "", func(o backing.Object) error {
				names = append(names, o.Name)
				return nil
			})
			if slices.Sort(names); err == nil && !slices.Equal(names, []string{"d/e/g", "f"}) {
				return fmt.Errorf("it lists %q", names)
			}
			return err
		}),
		{name: "sweep", before: tree{"f": some, abandoned: other}, after: tree{"f": some}, waits: never, do: func(ctx context.Context, s backing.Store) error {
			_, err := s.Sweep(ctx)
			return err
		}},
		readOp("check", never, func(ctx context.Context, s backing.Store) error { return s.Check(ctx) }),
	}
	if h.Large > 0 {
		large := putOp("put of a large object over another", tree{"f": other}, tree{"f": Data(h.Large, 3)}, h.Attrs)
		large.large = true
		ops = append(ops, large)
	}
	for _, more := range h.More {
		op := readOp(more.Name, never, nil)
		op.in = more.Do
		ops = append(ops, op)
	}
	return ops
}

// faultCase is one operation on one directory, disturbed once.
type faultCase struct {
	faultOp
	t     *testing.T
	h     *FaultHarness
	fs    *powertest.FS
	dir   string // of the store, below the mount point
	store backing.Store
	fault powertest.Fault
	kills bool // the process that calls is killed when the call has come
}

// must ends the test on an error of an undisturbed operation.
func (c *faultCase) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", c.fault.Call, err)
	}
}

func (h *FaultHarness) newCase(t *testing.T, mount *powertest.FS, op faultOp, number int) *faultCase {
	c := &faultCase{faultOp: op, t: t, h: h, fs: mount, dir: filepath.Join(mount.Dir, fmt.Sprint(number))}
	c.must(os.Mkdir(c.dir, 0o755))
	c.must(os.Chown(c.dir, int(h.UID), int(h.UID)))
	c.sync()
	s := c.open(faultOwner)
	for name, p := range op.before {
		if backing.IsTemp(name) { // no store puts that
			c.must(os.MkdirAll(filepath.Join(c.dir, path.Dir(name)), 0o755))
			c.must(os.WriteFile(filepath.Join(c.dir, name), p, 0o644))
			for _, made := range []string{path.Dir(name), name} {
				c.must(os.Chown(filepath.Join(c.dir, made), int(h.UID), int(h.UID)))
			}
			continue
		}
		_, err := s.Put(t.Context(), name, backing.NewBytes(p), backing.PutOptions{})
		c.must(err)
	}
	c.store = c.open(faultOwner) // it has no directory in its cache
	return c
}

func (c *faultCase) open(owner backing.Owner) backing.Store {
	s, err := c.h.Open(c.t.Context(), c.dir, owner)
	c.must(err)
	return s
}

// run does the operation.
func (c *faultCase) run(ctx context.Context, s backing.Store) error {
	if c.in != nil {
		return c.in(ctx, s, c.dir)
	}
	return c.do(ctx, s)
}

// sync makes the names of the directories of all cases durable.
func (c *faultCase) sync() {
	root, err := os.Open(c.fs.Dir)
	c.must(err)
	c.must(errors.Join(root.Sync(), root.Close()))
}

// away removes the case's directory, so that the next has less to walk through.
func (c *faultCase) away() {
	c.must(os.RemoveAll(c.dir))
	c.sync()
}

// visible returns the visible files.
func (c *faultCase) visible() tree {
	found := tree{}
	c.must(filepath.WalkDir(c.dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		p, err := os.ReadFile(file)
		name, _ := filepath.Rel(c.dir, file)
		if errors.Is(err, fs.ErrNotExist) && backing.IsTemp(name) {
			return nil // another process removes it just now
		}
		found[name] = p
		return err
	}))
	return found
}

// left returns the files that a cut of the power would leave, drawn by a seed.
func (c *faultCase) left(seed uint64) tree {
	found, below := tree{}, filepath.Base(c.dir)+"/"
	for name, p := range c.fs.Left(seed) {
		if name, is := strings.CutPrefix(name, below); is {
			found[name] = p
		}
	}
	return found
}

// judge compares the files with the possible ones. done means that the operation has succeeded.
func (c *faultCase) judge(when string, found tree, done bool) {
	c.t.Helper()
	names := maps.Clone(c.before)
	maps.Copy(names, c.after)
	maps.Copy(names, found)
	is := func(p, want []byte) bool { return bytes.Equal(p, want) && (p == nil) == (want == nil) }
	for name := range names {
		switch p := found[name]; {
		case backing.IsTemp(name) && name != abandoned:
		case is(p, c.after[name]), !done && is(p, c.before[name]):
		default:
			c.t.Errorf("%s: %s: %s has %d bytes that are neither the old nor the new content (it succeeded: %v)", c.what(), when, name, len(p), done)
		}
	}
	for from, to := range c.moves {
		if !is(found[from], c.before[from]) && !is(found[to], c.after[to]) {
			c.t.Errorf("%s: %s: neither %s nor %s has the content", c.what(), when, from, to)
		}
	}
}

func (c *faultCase) judgeAll(when string, done bool) {
	c.t.Helper()
	c.judge(when, c.visible(), done)
	for seed := range uint64(2) { // no unsynced write survives, or all do
		c.judge(fmt.Sprintf("%s, power cut %d", when, seed), c.left(seed), done)
	}
}

func (c *faultCase) what() string {
	switch f := c.fault; {
	case f.Short:
		return f.Call + " is carried out in part"
	case f.Hold != nil && c.kills:
		return f.Call + " is the last of its process"
	case f.Hold != nil:
		return f.Call + " hangs"
	case f.Done:
		return fmt.Sprintf("%s is carried out and fails: %v", f.Call, f.Errno)
	default:
		return fmt.Sprintf("%s fails: %v", f.Call, f.Errno)
	}
}

// temps counts temporary files of this life.
func (c *faultCase) temps() (n int) {
	for name := range c.visible() {
		if backing.IsTemp(name) && name != abandoned {
			n++
		}
	}
	return n
}

// want is the kind of error of a failed call.
func wantKind(errno syscall.Errno) bb.Kind {
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		return bb.NoSpace
	default:
		return bb.Unavailable
	}
}

// fails does the operation while one call fails, and then again.
func (c *faultCase) fails() {
	reached := c.fs.Inject(c.fault)
	err := c.run(c.t.Context(), c.store)
	select {
	case <-reached:
	default:
		c.h.Settle() // a file that was read is closed after the operation
		select {
		case <-reached:
		default:
			c.t.Errorf("%s: the call did not come", c.what())
		}
	}
	c.fs.Calls()
	if kind := wantKind(c.fault.Errno); err != nil && bb.KindOf(err) != kind {
		c.t.Errorf("%s: %v, of kind %v, want %v", c.what(), err, bb.KindOf(err), kind)
	}
	if err != nil && !backing.Passing(err) {
		c.t.Errorf("%s: %v is not tried again", c.what(), err)
	}
	c.tail(err)
}

// hangs does the operation while one call is held, ends its context, or its process, and lets the
// call continue.
func (c *faultCase) hangs() {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	c.fault.Hold = make(chan struct{})
	reached, ended, settled := c.fs.Inject(c.fault), make(chan error, 1), make(chan struct{})
	go func() {
		ended <- c.run(ctx, c.store)
		c.h.Settle()
		close(settled)
	}()
	select {
	case <-reached:
	case <-settled:
		c.t.Fatalf("%s: the call did not come (%v)", c.what(), <-ended)
	}
	want := bb.Cancelled
	if c.kills {
		c.h.Kill(c.t, c.store)
		want = bb.Unavailable
	} else {
		cancel()
	}
	var err error
	if !c.h.Waits || c.waits(c.fault.Call) {
		close(c.fault.Hold)
		err = <-ended
	} else {
		select {
		case err = <-ended:
		case <-time.After(WaitTime):
			c.t.Errorf("%s: the operation does not end with its context", c.what())
		}
		close(c.fault.Hold)
	}
	<-settled
	c.fs.Calls()
	if err != nil && !errors.Is(err, want) {
		c.t.Errorf("%s: %v, of kind %v", c.what(), err, bb.KindOf(err))
	}
	c.tail(err)
}

// tail checks the files after an operation, and does it again.
func (c *faultCase) tail(err error) {
	c.judgeAll("afterwards", err == nil)
	if n := c.temps(); n > 0 && err == nil {
		c.t.Errorf("%s: it succeeded and left %d temporary files", c.what(), n)
	}
	again := c.run(c.t.Context(), c.store)
	if errors.Is(again, bb.NotFound) && c.moves != nil { // it was moved already, so package retry checks the new name
		again = nil
	}
	if again != nil {
		c.t.Errorf("%s: again: %v", c.what(), again)
	}
	c.judgeAll("again", true)
	c.owned()
	next := faultOwner
	next.Life++
	_, err = c.open(next).Sweep(c.t.Context())
	c.must(err)
	if n := c.temps(); n > 0 {
		c.t.Errorf("%s: the next life's sweep leaves %d temporary files", c.what(), n)
	}
}

// owned makes sure that new directories belong to the owner of the files in them. The maker of one
// that was made although the call failed is unknown.
func (c *faultCase) owned() {
	if c.fault.Done && strings.HasPrefix(c.fault.Call, "mkdir") || !strings.Contains(c.name, "put into") {
		return
	}
	for _, dir := range []string{"d", "d/e"} {
		info, err := os.Stat(filepath.Join(c.dir, dir))
		c.must(err)
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != c.h.Attrs.UID {
			c.t.Errorf("%s: the directory %s belongs to %d", c.what(), dir, uid)
		}
	}
}

// changing are the calls of the kernel that change something, and may find no room for it.
var changing = []string{"create", "mkdir", "setattr", "write", "fallocate", "fsync", "fsyncdir", "flush", "rename", "unlink", "rmdir"}

// faultsOf returns all that is to happen to a call, but that it hangs.
func faultsOf(call string) []powertest.Fault {
	all := []powertest.Fault{{Call: call, Errno: syscall.EIO}, {Call: call, Errno: syscall.ESTALE}}
	if kind, _, _ := strings.Cut(call, " "); slices.Contains(changing, kind) {
		all = append(all, powertest.Fault{Call: call, Errno: syscall.ENOSPC}, powertest.Fault{Call: call, Errno: syscall.EDQUOT},
			powertest.Fault{Call: call, Errno: syscall.EIO, Done: true})
	}
	return all
}

// mount mounts a file system whose calls can fail.
func (h *FaultHarness) mount(t *testing.T) *powertest.FS {
	if h.Dir != nil {
		return powertest.MountCaching(t, h.Dir(t))
	}
	return powertest.MountCaching(t, t.TempDir())
}

// callsOf returns the calls of an operation that nothing disturbs.
func (h *FaultHarness) callsOf(t *testing.T, mount *powertest.FS, op faultOp) []string {
	count := h.newCase(t, mount, op, 0)
	mount.Inject(powertest.Fault{})
	count.must(count.run(t.Context(), count.store))
	h.Settle()
	calls := mount.Calls()
	count.judgeAll("undisturbed", true)
	count.away()
	return calls
}

// Errnos fails each system call of a put once with each errno of a file system whose servers are away, and has each
// write carried out in part. The error is one that is tried again, and the put done again succeeds.
func Errnos(t *testing.T, h FaultHarness) {
	mount := h.mount(t)
	op := putOp("put over an object", tree{"d/f": other}, tree{"d/f": some}, h.Attrs)
	cases := 0
	run := func(fault powertest.Fault) {
		cases++
		c := h.newCase(t, mount, op, cases)
		c.fault = fault
		c.fails()
		c.away()
	}
	for _, call := range h.callsOf(t, mount, op) {
		kind, _, _ := strings.Cut(call, " ")
		if !slices.Contains(changing, kind) {
			continue
		}
		for _, errno := range []syscall.Errno{
			syscall.ENODEV, syscall.EIO, syscall.ESHUTDOWN, syscall.ENOTCONN, syscall.ESTALE, syscall.EAGAIN, syscall.EINTR, syscall.EFAULT,
			syscall.ETIMEDOUT, syscall.EHOSTDOWN, syscall.ENOSPC, syscall.EDQUOT,
		} {
			run(powertest.Fault{Call: call, Errno: errno})
		}
		if kind == "write" {
			run(powertest.Fault{Call: call, Short: true})
		}
	}
	if cases < 70 {
		t.Errorf("there were %d cases: the test does not test", cases)
	}
}

// Faults fails each system call of each operation once with each errno, before it is carried out
// and after, and lets each hang once. An object under a final name is never damaged or lost, also
// if the power is cut then, and the operation done again succeeds.
func Faults(t *testing.T, h FaultHarness) {
	cases := 0
	for _, op := range h.ops() {
		t.Run(op.name, func(t *testing.T) {
			mount := h.mount(t)
			begin := func(fault powertest.Fault) *faultCase {
				cases++
				c := h.newCase(t, mount, op, cases)
				c.fault = fault
				return c
			}
			for _, call := range h.callsOf(t, mount, op) {
				if op.large { // a mount's bytes stay in memory
					mount = h.mount(t)
				}
				for _, fault := range faultsOf(call) {
					if (op.large || h.Brief) && fault.Errno != syscall.EIO {
						continue // the others differ in the kind alone, as for small ones
					}
					c := begin(fault)
					c.fails()
					c.away()
				}
				c := begin(powertest.Fault{Call: call})
				c.hangs()
				c.away()
				if h.Kill != nil {
					c := begin(powertest.Fault{Call: call})
					c.kills = true
					c.hangs()
					c.away()
				}
			}
		})
	}
	if cases < h.Min {
		t.Errorf("there were %d cases, want at least %d: the test does not test", cases, h.Min)
	}
}
