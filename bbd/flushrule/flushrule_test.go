package flushrule

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/walk"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// world is a namespace of files by path, and all that a Buffer needs beside it.
type world struct {
	mu         sync.Mutex
	files      map[string]bb.Entry
	removed    []string
	reads      int  // walks of steps
	short      bool // memory is
	away       bb.NodeID
	reconsider []string
	events     []bb.Event
	remove     func(path string) error // in place of a removal
	walked     func(step string)       // a step is about to be read
}

func newWorld(rules ...string) (*world, *Buffer) {
	w := &world{files: map[string]bb.Entry{}}
	o := Options{
		Owners: owner.Node{Self: "n1"}, Serves: func(n bb.NodeID) bool { return n != w.away }, Short: func() bool { return w.short },
		DirtyAge: time.Hour, Dropped: func(int64, int64) {}, Emit: func(e bb.Event) { w.events = append(w.events, e) },
		Remove: w.removeFile, Reconsider: func(p []string) { w.reconsider = p }, Warn: func(string, ...any) {},
	}
	return w, New(o, bb.Buffer{Name: "b", Flush: bb.FlushRules(rules)}, dirty.New(), w, w)
}

// add adds files that are dirty, owned by n1, of 10 bytes, and closed at a place in the order of the namespace's changes.
func (w *world) add(at uint64, paths ...string) {
	for _, p := range paths {
		w.files[p] = bb.Entry{
			Type: bb.TypeFile, File: bb.FileID(len(w.files) + 1), Generation: 1, Name: path.Base(p), Size: 10, Revision: at,
			Closed: bb.Closing{Generation: 1, Revision: at}, MTime: time.Now(), Holders: []bb.NodeID{"n1"},
		}
	}
}

func (w *world) change(p string, how func(*bb.Entry)) {
	e := w.files[p]
	how(&e)
	w.files[p] = e
}

// removeFile removes a file that matches e.
func (w *world) removeFile(_ context.Context, p string, e *bb.Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.remove != nil {
		if err := w.remove(p); err != nil {
			return err
		}
	}
	switch now := w.files[p]; {
	case !e.IsDir() && (now.File != e.File || now.Generation != e.Generation):
		return bb.E(bb.NotFound, "remove", p, "it has been replaced")
	case e.IsDir() && len(w.children(p)) > 0:
		return bb.E(bb.NotEmpty, "remove", p, "it is not empty")
	}
	w.removed = append(w.removed, p)
	delete(w.files, p)
	return nil
}

// children are the names in a directory. Those of directories end with a slash.
func (w *world) children(dir string) []string {
	names := map[string]bool{}
	for p := range w.files {
		rest, ok := strings.CutPrefix("/"+p, strings.TrimSuffix("/"+dir, "/")+"/")
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		if deeper {
			name += "/"
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (w *world) List(_ context.Context, _ access.Caller, dir, after string, _ int) (entries []bb.Entry, more bool, err error) {
	for _, name := range w.children(dir) {
		e := bb.Entry{Type: bb.TypeDirectory, Name: strings.TrimSuffix(name, "/")}
		if e.Name == name {
			e = w.files[bb.Place{Name: name}.In(dir)]
		}
		if e.Name > after {
			return []bb.Entry{e}, true, nil // a page of one
		}
	}
	return nil, false, nil
}

func (w *world) Walk(ctx context.Context, c access.Caller, op, dir string, visit walk.Visitor) error {
	w.reads++
	if w.walked != nil {
		w.walked(dir)
	}
	return w.walk(ctx, dir, visit)
}

func (w *world) walk(ctx context.Context, dir string, visit walk.Visitor) error {
	children := w.children(dir)
	if len(children) == 0 {
		return bb.E(bb.NotFound, "walk", dir, "it is not there")
	}
	if err := visit.Enter(dir, &bb.Entry{Type: bb.TypeDirectory}); err != nil {
		return err
	}
	for _, name := range children {
		p := bb.Place{Name: strings.TrimSuffix(name, "/")}.In(dir)
		if strings.HasSuffix(name, "/") {
			if err := w.walk(ctx, p, visit); err != nil {
				return err
			}
			continue
		}
		e := w.files[p]
		if err := visit.File(p, &e); err != nil {
			return err
		}
	}
	return nil
}

// The directories of the world's namespace are numbered nowhere. A file's place has its whole path as its name.
func (w *world) ScanAll(_ context.Context, visit func(bb.Entry) error) error {
	for _, p := range slices.Sorted(maps.Keys(w.files)) {
		e := w.files[p]
		e.Name = p
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) PathOf(context.Context, bb.DirID) (string, error) { return "", nil }

// step adds a step that is complete.
func (w *world) step(at uint64, dir string) {
	w.add(at, dir+"/a", dir+"/d/b", dir+"/.metadata")
}

func pass(t *testing.T, b *Buffer) (dropped bool) {
	t.Helper()
	dropped, err := b.pass(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	return dropped
}

// passAnew is a pass that reads all series.
func passAnew(t *testing.T, b *Buffer) {
	t.Helper()
	b.mu.Lock()
	for dir := range b.mu.series {
		b.readSoon(dir)
	}
	b.mu.Unlock()
	pass(t, b)
}

func states(b *Buffer) string { return fmt.Sprint(b.Steps().States) }

// TestPass: steps are evaluated of which a file was noted, and those that are to be flushed are
// reconsidered.
func TestPass(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	for i := 4; i <= 7; i++ {
		w.step(uint64(i), fmt.Sprint("run/step-", i))
	}
	w.step(1, "other/step-1")
	pass(t, b)
	if got := states(b); got != "map[]" {
		t.Errorf("nothing was noted: %s", got)
	}
	b.Note("run/step-7/a")
	b.Note("run/plain")
	pass(t, b)
	if got := states(b); got != "map[run/step-4:3 run/step-6:3 run/step-7:2]" {
		t.Error(got)
	}
	if s := b.Stats(); s.Superseded != 6 || s.SupersededBytes != 60 {
		t.Errorf("%+v", s)
	}
	drain, err := b.Drain(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	if got := states(b); got != "map[run/step-4:3 run/step-6:3 run/step-7:1]" || !slices.Contains(w.reconsider, "run/step-7") {
		t.Errorf("while it is drained: %s, reconsidered: %q", got, w.reconsider)
	}
	drain.End()
	pass(t, b)
	if got := states(b); got != "map[run/step-4:3 run/step-6:3 run/step-7:2]" {
		t.Errorf("after the drain: %s", got)
	}
	for p, e := range w.files {
		e.SetFlushed(bb.Flushed{Generation: e.Generation})
		if w.files[p] = e; strings.HasPrefix(p, "run/step-4/") || strings.HasPrefix(p, "run/step-6/") {
			delete(w.files, p) // by their user
		}
	}
	b.Note("run/step-8/a") // which is gone already
	pass(t, b)
	pass(t, b)
	if got := states(b); got != "map[]" {
		t.Errorf("nothing is held back: %s", got)
	}
}

// TestKnown: a superseded step is read again only after a file of it is noted or the newer step is
// removed.
func TestKnown(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 100")
	for i := 1; i <= 9; i++ {
		w.step(uint64(i), fmt.Sprint("step-", i))
	}
	b.Note("step-1/a")
	pass(t, b)
	w.reads = 0
	if passAnew(t, b); w.reads != 1 {
		t.Errorf("%d of 9 steps were read again", w.reads)
	}
	w.add(20, "step-3/a") // after the last one
	b.Note("step-3/a")
	if pass(t, b); b.Steps().States["step-3"] != 2 {
		t.Errorf("a step that was written again: %s", states(b))
	}
	for _, p := range []string{"step-9/a", "step-9/d/b", "step-9/.metadata"} {
		delete(w.files, p)
	}
	passAnew(t, b)
	if s := b.Steps().States; s["step-8"] != 2 || s["step-7"] != 3 {
		t.Errorf("after the newest one is gone: %s", states(b))
	}
}

// TestDrop: while memory is short, the superseded steps are dropped one by one, the oldest first, and of each the file
// that completes it.
func TestDrop(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	for i := 4; i <= 8; i++ {
		w.step(uint64(i), fmt.Sprint("step-", i))
	}
	b.Note("step-4/a")
	if pass(t, b) || len(w.removed) > 0 {
		t.Fatalf("memory is not short, and %q were removed", w.removed)
	}
	w.short = true
	for _, want := range []string{"step-4", "step-6", "step-7"} {
		w.removed = nil
		if !pass(t, b) {
			t.Fatalf("%s is not dropped", want)
		}
		if len(w.removed) != 5 || w.removed[0] != want+"/.metadata" || w.removed[3] != want+"/d" || w.removed[4] != want {
			t.Errorf("of %s: %q", want, w.removed)
		}
	}
	if pass(t, b) {
		t.Error("more was dropped than is superseded")
	}
	if s := b.Stats(); s.Dropped != 9 || s.DroppedBytes != 90 || s.Superseded != 0 {
		t.Errorf("%+v", s)
	}
	if e := w.events[0]; len(w.events) != 3 || e.Kind != bb.EventSuperseded || e.Path != "step-4" || e.Bytes != 30 || !strings.Contains(e.Reason, "step-8 is complete") {
		t.Errorf("%+v", w.events)
	}
}

// TestDropNot: a step that is being written, has losses in the newer step, is on the store in part, or is not superseded
// any more at its removal, stays.
func TestDropNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*world)
		states string
	}{
		"nothing is the matter":           {func(*world) {}, "dropped"},
		"a file is open":                  {func(w *world) { w.change("step-1/a", func(e *bb.Entry) { e.Open = true }) }, "map[step-1:3 step-2:2]"},
		"a file is on the store":          {func(w *world) { w.change("step-1/a", func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 1}) }) }, "map[step-1:1 step-2:2]"},
		"the newer one is open":           {func(w *world) { w.change("step-2/d/b", func(e *bb.Entry) { e.Open = true }) }, "map[step-1:2 step-2:0]"},
		"the newer one is lost":           {func(w *world) { w.change("step-2/d/b", func(e *bb.Entry) { e.Lost = true }) }, "map[step-1:2 step-2:0]"},
		"the newer one is away":           {func(w *world) { w.change("step-2/d/b", func(e *bb.Entry) { e.Holders[0] = "n3" }) }, "map[step-1:2 step-2:0]"},
		"the newer one is another node's": {func(w *world) { w.change("step-2/d/b", func(e *bb.Entry) { e.Holders[0] = "n2" }) }, "dropped"},
		"the newer one has no marker":     {func(w *world) { delete(w.files, "step-2/.metadata") }, "map[step-1:2 step-2:0]"},
		"its marker is in a directory":    {func(w *world) { delete(w.files, "step-2/.metadata"); w.add(2, "step-2/d/.metadata") }, "map[step-1:2 step-2:0]"},
		"another node's files, all of them": {func(w *world) {
			for _, p := range []string{"step-1/a", "step-1/d/b", "step-1/.metadata"} {
				w.change(p, func(e *bb.Entry) { e.Holders[0] = "n2" })
			}
		}, "map[step-1:3 step-2:2]"},
	} {
		w, b := newWorld("step-*/=every 5")
		w.step(1, "step-1")
		w.step(2, "step-2")
		w.short, w.away = true, "n3"
		b.Note("step-1/a")
		c.change(w)
		got := "dropped"
		if !pass(t, b) {
			got = states(b)
		}
		if got != c.states || got != "dropped" && len(w.removed) > 0 {
			t.Errorf("%s: %s, want %s; removed: %q", name, got, c.states, w.removed)
		}
	}
}

// TestDropCutOff: the rest of a step whose removal fails is removed later. Files of a node that does not answer
// are left to that node.
func TestDropCutOff(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	w.step(1, "step-1")
	w.step(2, "step-2")
	w.short = true
	b.Note("step-1/a")
	w.remove = func(p string) error {
		if p == "step-1/a" {
			return bb.E(bb.Internal, "remove", p, "broken")
		}
		return nil
	}
	if _, err := b.pass(t.Context(), false); bb.KindOf(err) != bb.Internal {
		t.Fatal(err)
	}
	if _, there := w.files["step-1/.metadata"]; there {
		t.Error("what is left of the step is complete")
	}
	w.remove = func(p string) error {
		if p == "step-1/d/b" {
			return bb.E(bb.Unavailable, "remove", p, "no answer")
		}
		return nil
	}
	pass(t, b)
	for p := range w.files {
		if strings.HasPrefix(p, "step-1/") && p != "step-1/d/b" {
			t.Errorf("%s is left", p)
		}
	}
}

// TestDropUnavailable: if the file that completes a step cannot be removed, no other file is. The rest would
// look complete. The next step is dropped in its place.
func TestDropUnavailable(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	for i := 1; i <= 3; i++ {
		w.step(uint64(i), fmt.Sprint("step-", i))
	}
	w.short = true
	b.Note("step-1/a")
	w.remove = func(p string) error {
		if p == "step-1/.metadata" {
			return bb.E(bb.Unavailable, "remove", p, "no answer")
		}
		return nil
	}
	if !pass(t, b) || slices.ContainsFunc(w.removed, func(p string) bool { return strings.HasPrefix(p, "step-1/") }) || len(w.files) != 6 {
		t.Errorf("removed: %q", w.removed)
	}
}

// TestDrainPinned: a step that a drain has begun to flush is flushed by it though a newer one is completed meanwhile,
// and is not dropped.
func TestDrainPinned(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	w.step(1, "step-1")
	w.step(2, "step-2")
	b.Note("step-1/a")
	drain, err := b.Drain(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	w.step(3, "step-3")
	w.short = true
	if !pass(t, b) || len(w.files) != 6 { // without step-1
		t.Errorf("removed: %q", w.removed)
	}
	if pass(t, b) {
		t.Errorf("removed: %q", w.removed)
	}
	if got := states(b); got != "map[step-2:1 step-3:1]" {
		t.Error(got)
	}
	drain.End()
	if !pass(t, b) || len(w.files) != 3 {
		t.Errorf("after the drain, which has flushed nothing: %s", states(b))
	}
}

// TestLook: a look reads a series once, however many of its steps the requests are about.
func TestLook(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 100")
	for i := 1; i <= 9; i++ {
		w.step(uint64(i), fmt.Sprint("step-", i))
	}
	look := b.Look()
	for i := 1; i <= 9; i++ {
		got, err := look.Superseded(t.Context(), []string{fmt.Sprint("step-", i, "/")})
		if err != nil || len(got) != 1-i/9 {
			t.Errorf("step %d: %v, %v", i, got, err)
		}
	}
	if w.reads != 9 {
		t.Errorf("9 steps were read in %d walks", w.reads)
	}
}

// TestStrained: held files are flushed when memory is short and there is nothing to drop.
func TestStrained(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	w.step(1, "step-1")
	w.step(2, "step-2")
	w.add(3, "step-3/a")
	w.short = true
	b.Note("step-1/a")
	if dropped, err := b.pass(t.Context(), true); !dropped || err != nil {
		t.Fatal(err)
	}
	if got := states(b); got != "map[step-1:3 step-2:2 step-3:0]" {
		t.Errorf("with a step to drop: %s", got)
	}
	if dropped, err := b.pass(t.Context(), true); dropped || err != nil {
		t.Fatal(err)
	}
	if got := states(b); got != "map[step-2:1 step-3:1]" || fmt.Sprint(w.reconsider) != "[step-3 step-2]" {
		t.Errorf("with none: %s, reconsidered: %q", got, w.reconsider)
	}
}

// TestUnsaved: superseded files are not among those that a buffer's end would lose, and have their state in listings.
func TestUnsaved(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	w.step(1, "step-1")
	w.step(2, "step-2")
	w.change("step-1/d/b", func(e *bb.Entry) { e.Lost = true })
	w.change("step-2/a", func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 1}) })
	var left []string
	err := b.Unsaved(t.Context(), func(_ *bb.Entry, p string) error {
		left = append(left, p)
		return nil
	})
	if err != nil || fmt.Sprint(left) != "[step-1/d/b step-2/.metadata step-2/d/b]" {
		t.Errorf("%q, %v", left, err)
	}
	w.change("step-1/a", func(e *bb.Entry) { e.Holders[0] = "n2" })
	steps, err := b.SupersededSteps(t.Context())
	if got := fmt.Sprint(steps); err != nil || got != "[{step-1 step-2 2 20}]" {
		t.Errorf("superseded: %s, %v", got, err)
	}
	entry := func() *wire.Entry { return &wire.Entry{Name: "a", State: uint32(bb.StateDirty)} }
	old, last, clean := entry(), entry(), &wire.Entry{State: uint32(bb.StateClean)}
	b.MarkEntries(t.Context(), "step-1", clean, old)
	b.MarkEntries(t.Context(), "step-2", last)
	b.MarkEntries(t.Context(), ".", last)
	if bb.State(old.State) != bb.StateSuperseded || bb.State(last.State) != bb.StateDirty || bb.State(clean.State) != bb.StateClean {
		t.Errorf("%v, %v, %v", old, last, clean)
	}
	none := New(Options{}, bb.Buffer{}, dirty.New(), w, w)
	none.Note("step-1/a")
	if d, err := none.Drain(t.Context(), ""); err != nil || none.Steps() != nil {
		t.Error(err)
	} else {
		d.End()
	}
}

// TestDropReplaced: new files under a dropped step's name are not removed.
func TestDropReplaced(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 5")
	w.step(1, "step-1")
	w.step(2, "step-2")
	w.short = true
	b.Note("step-1/a")
	w.remove = func(p string) error {
		if p == "step-1/.metadata" { // its series goes back, so that step 1 is written anew, by a rename
			for _, f := range []string{"step-1/a", "step-1/d/b"} {
				w.change(f, func(e *bb.Entry) { e.File += 100; e.Closed.Revision = 100 })
			}
		}
		return nil
	}
	pass(t, b)
	for _, f := range []string{"step-1/a", "step-1/d/b"} {
		if _, ok := w.files[f]; !ok {
			t.Errorf("%s, written after step-2 was complete, was dropped", f)
		}
	}
}

// TestDropSeriesOfTwoNames: steps whose names differ before the number do not supersede each other.
func TestDropSeriesOfTwoNames(t *testing.T) {
	t.Parallel()
	w, b := newWorld("*-step-*/=last at end of job")
	w.step(1, "bert-step-10")
	w.step(2, "gpt-step-20")
	w.short = true
	b.Note("bert-step-10/a")
	if pass(t, b) {
		t.Errorf("the newest step of bert was dropped for one of gpt: %q", w.removed)
	}
}

// TestTimesOfFiles: the modification times of files, which users set, decide nothing but when the dirty age of a begun
// step is over, and that not later than by the daemon's own clock.
func TestTimesOfFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld("step-*/=every 100")
		w.step(1, "step-1")
		w.step(2, "step-2")
		w.step(4, "step-4")
		w.step(5, "step-3") // the series went back
		w.add(6, "step-7/a")
		set := func(when time.Time, paths ...string) {
			for _, p := range paths {
				w.change(p, func(e *bb.Entry) { e.MTime = when })
			}
		}
		set(time.Now().Add(-100*time.Hour), "step-3/a", "step-3/d/b", "step-3/.metadata")
		set(time.Now().Add(100*time.Hour), "step-4/.metadata", "step-1/a", "step-7/a")
		b.Note("step-1/a")
		pass(t, b)
		if got := states(b); got != "map[step-1:3 step-2:3 step-3:2 step-4:2 step-7:0]" {
			t.Error(got)
		}
		time.Sleep(time.Hour)
		pass(t, b)
		if got := states(b); got != "map[step-1:3 step-2:3 step-3:2 step-4:2 step-7:1]" {
			t.Errorf("when the dirty age is over: %s", got)
		}
	})
}

// TestUnknownClose: a step supersedes none, and is flushed as an incomplete one is, if a file of it
// was not closed by its writers, or by a daemon that did not record it. It is superseded by one
// that was closed after its files were changed last.
func TestUnknownClose(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"step-2/a", "step-2/d/b", "step-2/.metadata"} {
		w, b := newWorld("step-*/=every 100")
		w.step(1, "step-1")
		w.step(2, "step-2")
		w.change(file, func(e *bb.Entry) { e.Closed, e.Revision = bb.Closing{}, 5 })
		b.Note("step-1/a")
		pass(t, b)
		if got := states(b); got != "map[step-1:2 step-2:0]" {
			t.Errorf("without a close of %s: %s", file, got)
		}
		w.step(4, "step-3") // before the possible close of that file
		b.Note("step-3/a")
		pass(t, b)
		if got := states(b); got != "map[step-1:3 step-2:0 step-3:2]" {
			t.Errorf("with a newer one, before %s was changed: %s", file, got)
		}
		w.step(6, "step-4")
		b.Note("step-4/a")
		pass(t, b)
		if got := states(b); got != "map[step-1:3 step-2:3 step-3:3 step-4:2]" {
			t.Errorf("with a newer one after %s: %s", file, got)
		}
	}
}

// TestNotedMeanwhile: a step that is written again while a pass continues with its earlier reading of it, is read by the
// next one.
func TestNotedMeanwhile(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 100")
	w.step(1, "step-1")
	w.step(2, "step-2")
	b.Note("step-1/a")
	pass(t, b)
	w.walked = func(string) {
		w.add(3, "step-1/a")
		b.Note("step-1/a")
		w.walked = nil
	}
	passAnew(t, b)
	if pass(t, b); states(b) != "map[step-1:2 step-2:2]" {
		t.Error(states(b))
	}
}

// TestIdle: a series of which nothing is noted is read ever less often, and not at all once nothing of it is held
// back. Steps due by time are flushed in time.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld("step-*/=every 100")
		for i := 1; i <= 9; i++ {
			w.step(uint64(i), fmt.Sprint("step-", i))
		}
		b.Note("step-1/a")
		passes := func(n int) (reads int) {
			w.reads = 0
			for range n {
				pass(t, b)
				time.Sleep(time.Second)
			}
			return w.reads
		}
		if got := passes(1); got != 9 {
			t.Errorf("at first, 9 steps are read in %d walks", got)
		}
		// Once by the time of a second, two, four, and eight, and then each eight, the newest; each superseded one in 30 s.
		if got := passes(120); got < 15+3*8 || got > 19+4*8 {
			t.Errorf("in 2 min without a change: %d walks", got)
		}
		w.add(10, "step-1/a")
		b.Note("step-1/a")
		if got := passes(1); got < 2 || states(b) != "map[step-1:2 step-2:3 step-3:3 step-4:3 step-5:3 step-6:3 step-7:3 step-8:3 step-9:2]" {
			t.Errorf("after a change: %d walks, %s", got, states(b))
		}
		w.add(11, "step-10/a") // of this node, and not noted yet
		b.Note("step-10/a")
		begun := time.Now()
		passes(3602)
		if b.Steps().States["step-10"] != 1 {
			t.Errorf("%v later, its dirty age is not over: %s", time.Since(begun), states(b))
		}
		for p, e := range w.files {
			e.SetFlushed(bb.Flushed{Generation: e.Generation})
			w.files[p] = e
		}
		if passes(100); passes(100) != 0 {
			t.Error("a series of which nothing is held back is read")
		}
	})
}

// TestLooks: listings have the steps read once in a second, if nothing is noted of them, of as many directories as it
// may be.
func TestLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld("step-*/=every 100")
		for i := 1; i <= 9; i++ {
			w.step(uint64(i), fmt.Sprint("step-", i))
			w.change(fmt.Sprint("step-", i, "/a"), func(e *bb.Entry) { e.Holders[0] = "n2" })
		}
		list := func() (reads, superseded int) {
			before := w.reads
			for i := 1; i <= 9; i++ {
				e := &wire.Entry{Name: "a", State: uint32(bb.StateDirty)}
				b.MarkEntries(t.Context(), fmt.Sprint("step-", i), e)
				if bb.State(e.State) == bb.StateSuperseded {
					superseded++
				}
			}
			return w.reads - before, superseded
		}
		want := func(what string, reads, superseded int) {
			t.Helper()
			if r, s := list(); r != reads || s != superseded {
				t.Errorf("%s: %d walks, %d are superseded; want %d and %d", what, r, s, reads, superseded)
			}
		}
		want("at first", 9, 8)
		want("again", 0, 8)
		w.add(10, "step-3/a") // by another node
		want("a change that is not heard of", 0, 8)
		b.Note("step-3/a")
		want("when it is", 9, 7)
		w.step(11, "step-10")
		time.Sleep(lookAge)
		want("a second later", 10, 9)
		for i := range 3 * maxLooks {
			time.Sleep(time.Millisecond)
			w.step(1, fmt.Sprint(i, "/step-1"))
			b.MarkEntries(t.Context(), fmt.Sprint(i, "/step-1"), &wire.Entry{State: uint32(bb.StateDirty)})
		}
		if len(b.mu.looks) != maxLooks {
			t.Errorf("the looks at %d directories are kept", len(b.mu.looks))
		}
		want("when others have taken its place", 10, 9)
	})
}

// TestLooksWhileNoted: a file that is noted while steps are read for a listing is in the next.
func TestLooksWhileNoted(t *testing.T) {
	t.Parallel()
	w, b := newWorld("step-*/=every 100")
	w.step(1, "step-1")
	w.step(2, "step-2")
	w.walked = func(step string) {
		if step == "step-1" {
			w.walked = nil
			w.step(3, "step-3")
			b.Note("step-3/a")
		}
	}
	old, last := &wire.Entry{State: uint32(bb.StateDirty)}, &wire.Entry{State: uint32(bb.StateDirty)}
	b.MarkEntries(t.Context(), "step-1", old)
	b.MarkEntries(t.Context(), "step-2", last)
	if old.Reason != "step-2 is complete" || last.Reason != "step-3 is complete" {
		t.Errorf("%v, %v", old, last)
	}
}
