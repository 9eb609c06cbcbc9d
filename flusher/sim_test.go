package flusher_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/flusher/backing/mem"
	"forebay/flusher/storeop"
	"forebay/flusher/upload"
	"forebay/internal/bb"
)

// The simulation runs a Flusher over a namespace, stores and a clock that are simulated. A seed draws the operations of
// clients, failures of calls of the stores and of the namespace, and crashes of the daemon. Checks run after every change of
// a store, at every record of a flush, after every drain, and at the end.
//
//	FOREBAY_SEEDS=1000000 go test -run TestSimulation ./flusher   more seeds
//	FOREBAY_SEED=42 go test -run TestSimulation -v ./flusher      one of them, with its history; with FOREBAY_SEEDS the first
//
// A seed fixes operations, faults and times. It does not fix the order in which goroutines run that
// are ready at the same time. A failing seed may have to be run several times.
const simSeeds = 1000

// simFound are seeds that have found a fault, and the fault.
var simFound = map[string]uint64{
	"a removal that was queued for a hold whose change did not come is lost with the process":                2960,
	"an object that a rename has left under its new name is forgotten when a stalled flush of the name ends": 57464,
	"a flush that was cancelled says of its own object that another program has put it":                      332,
	"a newer generation is in conflict with what was put of an older one before a kill":                      56,
	"a rename is in conflict with what was put, and not recorded, under its new name before a kill":          2353,
	"a file that was lost after its Put leaves its object":                                                   67,
	"what a removed name had been put as before a kill is not known any more":                                3618,
	"a rename whose obstacle has gone fails the drain, for an attempt that began before it":                  84174,
	"a file waits for ever when the stores of all files that began with it hang":                             523529,
}

func TestSimulationFound(t *testing.T) {
	for name, seed := range simFound {
		t.Run(name, func(t *testing.T) { play(t, seed, false) })
	}
}

// play runs a seed, and reports whether no rule was broken.
func play(t *testing.T, seed uint64, tell bool) bool {
	var s *sim
	synctest.Test(t, func(*testing.T) {
		s = newSim(seed)
		s.run()
	})
	if len(s.wrong) > 0 {
		t.Errorf("seed %d:\n%s", seed, strings.Join(s.wrong, "\n"))
	}
	if len(s.wrong) > 0 || tell {
		t.Logf("seed %d:\n%s", seed, strings.Join(s.history, "\n"))
	}
	return len(s.wrong) == 0
}

func TestSimulation(t *testing.T) {
	first, count := uint64(1), uint64(simSeeds)
	if n, err := strconv.ParseUint(os.Getenv("FOREBAY_SEED"), 10, 64); err == nil {
		first, count = n, 1
	}
	if n, err := strconv.ParseUint(os.Getenv("FOREBAY_SEEDS"), 10, 64); err == nil {
		count = n
	}
	const lanes = 4
	var next, failed atomic.Uint64
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			for failed.Load() < 3 {
				n := next.Add(1) - 1
				if n >= count {
					return
				}
				if !play(t, first+n, count == 1) {
					failed.Add(1)
				}
			}
		})
	}
}

const (
	simSteps    = 40
	simPatience = 2 * time.Second
	simDirtyAge = 5 * time.Second
	// healthyWithin bounds how long a file of a store without faults may wait while others fail.
	healthyWithin = 20 * time.Second
	longestHang   = 65 * time.Second
	// endWithin bounds how long everything takes once nothing fails any more.
	endWithin = 10 * time.Minute
)

// simBuffers are the buffers, their stores and users. Two share a store, three a user, and one store never fails.
var simBuffers = []struct {
	name, store string
	user        uint32
}{{"a", "shared", 1}, {"b", "shared", 1}, {"c", "own", 1}, {"healthy", "healthy", 2}}

// simFile is a file of the namespace.
type simFile struct {
	buffer, path string
	id           bb.FileID
	generation   bb.Generation
	content      string
	versions     map[string]bool // contents that it has had
	flushed      bb.Flushed      // its own object
	left         bb.Flushed      // the object under its name is one that it has replaced
	durable      map[string]bool // contents of which one, or a version, must be on the store
	attempts     []bb.Content    // older contents that a flush may have put under its name
	since        time.Time       // dirty since
	damaged      bool            // its memory is damaged
	lost         bool            // its memory is gone
}

// simOp is an operation that is written down until it is carried out.
type simOp struct {
	buffer string
	op     storeop.Op
}

// entry is a namespace's entry of the file.
func (f *simFile) entry() *bb.Entry {
	c := contentOfSim(f.content)
	return &bb.Entry{
		Type: bb.TypeFile, File: f.id, Generation: f.generation, Size: c.Size, Checksum: c.Checksum,
		Flushed: f.flushed, Before: &bb.Before{Replaced: f.left, Attempts: f.attempts}, Lost: f.lost,
	}
}

func contentOfSim(content string) bb.Content {
	return bb.Content{Size: int64(len(content)), Checksum: backing.NewBytes([]byte(content)).Checksum()}
}

// foreignPrefix begins contents that another program puts on the stores.
const foreignPrefix = "theirs "

// sim is one run.
type sim struct {
	seed   uint64
	rng    *rand.Rand // of the driver alone
	start  time.Time
	stores map[string]*mem.Store // by buffer
	f      *flusher.Flusher
	life   *atomic.Bool // false: the daemon of the calls has died
	crash  atomic.Bool  // the driver restarts the daemon at its next step
	healed atomic.Bool  // nothing fails any more
	keeps  bool         // the buffers keep objects of others, of which there are some
	outage [2]time.Time // from, to: no store but the healthy one answers

	mu      sync.Mutex
	files   map[string]*simFile // by buffer/path
	byID    map[bb.FileID]*simFile
	journal []simOp
	theirs  map[string]string // objects of another program on the stores, by buffer/name
	last    uint64            // id
	calls   map[string]int
	pinned  int
	history []string
	wrong   []string
}

func newSim(seed uint64) *sim {
	s := &sim{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), start: time.Now(), stores: map[string]*mem.Store{},
		files: map[string]*simFile{}, byID: map[bb.FileID]*simFile{}, theirs: map[string]string{}, calls: map[string]int{},
	}
	if s.rng.IntN(2) == 0 {
		s.outage[0] = s.start.Add(time.Duration(s.rng.Int64N(int64(time.Minute))))
		s.outage[1] = s.outage[0].Add(time.Duration(s.rng.Int64N(int64(longestHang))))
	}
	s.keeps = s.rng.IntN(3) > 0
	for _, b := range simBuffers {
		s.stores[b.name] = mem.New(backing.Owner{}, nil)
	}
	return s
}

// note adds to the history. mu is held.
func (s *sim) note(format string, args ...any) {
	s.history = append(s.history, fmt.Sprintf("%8.3fs ", time.Since(s.start).Seconds())+fmt.Sprintf(format, args...))
}

// fail records a broken rule. mu is held.
func (s *sim) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.note("WRONG: %s", text)
	if len(s.wrong) < 5 {
		s.wrong = append(s.wrong, text)
	}
}

// boot starts a daemon's run. Recorded operations and dirty files are queued again.
func (s *sim) boot() {
	life := new(atomic.Bool)
	life.Store(true)
	s.life = life
	s.f = flusher.New(flusher.Options{
		Catalog: simCatalog{s, life}, Node: "n1", Workers: 4, PerBuffer: 2, PerStore: 3, Patience: simPatience,
		DirtyAge: simDirtyAge, Idle: 2 * time.Minute, Backoff: [2]time.Duration{100 * time.Millisecond, 3 * time.Second},
		Stores: func(_ context.Context, buffer string) (backing.Store, error) {
			return &simStore{Store: s.stores[buffer], s: s, buffer: buffer, life: life}, nil
		},
		Policy: func(buffer string) flusher.Policy {
			p := flusher.Policy{NoFlush: []string{"*.tmp"}, KeepExisting: s.keeps}
			for _, b := range simBuffers {
				if b.name == buffer {
					p.Store, p.User = b.store, b.user
				}
			}
			return p
		},
		Ours: s.ours,
		Applied: func(_ context.Context, buffer string, op storeop.Op) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if life.Load() {
				s.journal = slices.DeleteFunc(s.journal, func(o simOp) bool { return o.op.ID == op.ID })
			}
			return nil
		},
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned = 0
	for _, o := range s.journal {
		s.f.Apply(o.buffer, o.op)
	}
	for _, f := range s.files {
		if f.flushed.Generation != f.generation && !f.lost {
			f.since = time.Now()
			s.f.Enqueue(flusher.Item{Key: f.key(), Size: int64(len(f.content)), DirtySince: f.since, Path: f.path, Suspect: f.before().Generation == 0, Attempts: f.entry().Unrecorded()})
		}
	}
}

func (f *simFile) key() flusher.Key {
	return flusher.Key{Buffer: f.buffer, File: f.id, Generation: f.generation}
}

// before is the store's object under the file's name.
func (f *simFile) before() bb.Flushed {
	if f.flushed.Generation != 0 {
		return f.flushed
	}
	return f.left
}

// run plays the seed.
func (s *sim) run() {
	s.boot()
	for range simSteps {
		s.step()
		if s.crash.Load() {
			s.restart()
		}
	}
	s.end()
	time.Sleep(longestHang) // calls of earlier runs end
}

// restart kills the daemon and starts it again. No call of the old life changes anything. Memory of
// a dirty file may be gone then, which is reported lost.
func (s *sim) restart() {
	s.mu.Lock()
	s.note("the daemon is killed and started")
	s.life.Store(false)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		if f.buffer != "healthy" && f.flushed.Generation != f.generation && !f.lost && s.rng.IntN(10) == 0 {
			s.note("%s %v/%v is lost", name, uint64(f.id), uint64(f.generation))
			f.lost = true
		}
	}
	s.mu.Unlock()
	old := s.f
	go old.Close()
	s.crash.Store(false)
	s.boot()
}

func (s *sim) step() {
	b := simBuffers[s.rng.IntN(len(simBuffers))].name
	switch n := s.rng.IntN(100); {
	case n < 40:
		s.write(b, s.name())
	case n < 55:
		s.rename(b, s.name(), s.name())
	case n < 60:
		s.rename(b, "d", "e")
	case n < 63:
		s.rename(b, "e", "d")
	case n < 73:
		s.remove(b, s.name())
	case n < 76:
		s.remove(b, "d")
	case n < 80:
		s.f.Pause(b)
		time.Sleep(time.Duration(s.rng.IntN(2000)) * time.Millisecond)
		s.f.Resume(b)
	case n < 86:
		s.drain(b, time.Duration(s.rng.IntN(20))*time.Second)
	case n < 90:
		s.crash.Store(true)
	case n < 92 && s.keeps && b != "healthy":
		s.intrude(b, s.name())
	case n < 95:
		s.wait(b, s.name(), time.Duration(s.rng.IntN(10))*time.Second)
	default:
		time.Sleep(time.Duration(s.rng.IntN(20)) * time.Second)
	}
	time.Sleep(time.Duration(s.rng.IntN(3)) * time.Duration(s.rng.IntN(1500)) * time.Millisecond)
}

func (s *sim) name() string {
	return []string{"x", "y", "z.tmp", "d/x", "d/y", "e/x"}[s.rng.IntN(6)]
}

// write makes a file, or a new generation of one.
func (s *sim) write(b, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[b+"/"+name]
	if f == nil {
		s.last++
		f = &simFile{buffer: b, path: name, id: bb.FileID(s.last), versions: map[string]bool{}, durable: map[string]bool{}}
		s.files[b+"/"+name], s.byID[f.id] = f, f
	}
	if f.flushed.Generation == f.generation || f.generation == 0 {
		f.since = time.Now()
	}
	e := f.entry()
	if e.Supersede(); f.generation != 0 {
		f.attempts = e.Attempts()
	}
	s.last++
	f.generation, f.lost = bb.Generation(s.last), false
	f.content = fmt.Sprintf("%s %d/%d %s", name, f.id, f.generation, strings.Repeat("v", s.rng.IntN(200)))
	f.versions[f.content] = true
	f.damaged = s.rng.IntN(20) == 0 && b != "healthy"
	s.note("write %s/%s: %v/%v", b, name, uint64(f.id), uint64(f.generation))
	s.f.Enqueue(flusher.Item{Key: f.key(), Size: int64(len(f.content)), DirtySince: f.since})
}

// intrude makes another program put an object under a name that has none.
func (s *sim) intrude(b, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content := fmt.Sprint(foreignPrefix, s.rng.IntN(1000))
	if _, there := s.stores[b].Contents()[name]; there {
		return
	}
	if _, err := s.stores[b].Put(context.Background(), name, backing.NewBytes([]byte(content)), backing.PutOptions{}); err != nil {
		s.fail("another program puts %s: %v", name, err)
		return
	}
	s.note("another program puts %s/%s, %q", b, name, content)
	s.theirs[b+"/"+name] = content
}

// ours is Options.Ours, by the namespace: the entries, and the recorded operations.
func (s *sim) ours(_ context.Context, b string, op storeop.Op, objects []string) (ours []storeop.Owned, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	later := s.journal
	for len(later) > 0 && later[0].op.ID != op.ID {
		later = later[1:]
	}
	for _, object := range objects {
		o := storeop.Owned{Object: object}
		add := func(was []bb.Flushed, attempts []bb.Content) {
			for _, f := range was {
				if f.Generation != 0 {
					o.Was = append(o.Was, f)
				}
			}
			o.Attempts = append(o.Attempts, attempts...)
		}
		now := object
		for _, j := range later {
			if l := &j.op; j.buffer == b && len(o.Was)+len(o.Attempts) == 0 {
				switch {
				case l.Tree && l.Kind == storeop.Rename && strings.HasPrefix(now, l.Old+"/"):
					now = l.New + strings.TrimPrefix(now, l.Old)
				case !l.Tree && l.Old == now:
					add(l.Was, l.Attempts)
				case !l.Tree && l.New == now:
					add(l.Replaces, l.ReplacedAttempts)
				}
			}
		}
		if f := s.files[b+"/"+now]; f != nil && len(o.Was)+len(o.Attempts) == 0 {
			add([]bb.Flushed{f.before()}, f.entry().Unrecorded())
		}
		if len(o.Was)+len(o.Attempts) > 0 {
			ours = append(ours, o)
		}
	}
	return ours, nil
}

// record writes an operation down and queues it. mu is held.
func (s *sim) record(b string, op storeop.Op) {
	s.last++
	op.ID = s.last
	s.journal = append(s.journal, simOp{b, op})
	s.f.Apply(b, op)
}

// below returns the files at and below a path. mu is held.
func (s *sim) below(b, name string) (found []*simFile) {
	for _, f := range s.files {
		if f.buffer == b && (f.path == name || strings.HasPrefix(f.path, name+"/")) {
			found = append(found, f)
		}
	}
	return found
}

func (s *sim) rename(b, from, to string) {
	held, err := s.f.HoldRename(context.Background(), b, from, to)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fail("hold %s, %s: %v", from, to, err)
		return
	}
	defer held.Release()
	moved, there := s.below(b, from), s.below(b, to)
	tree := from == "d" || from == "e"
	if len(moved) == 0 || from == to || tree && len(there) > 0 {
		return
	}
	s.note("rename %s/%s to %s", b, from, to)
	held.Renamed(moved[0].id, moved[0].flushed, "")
	if tree {
		s.record(b, storeop.Op{Kind: storeop.Rename, Old: from, New: to, Tree: true})
	} else {
		s.replace(moved[0], there, to, held.Orphan)
	}
	for _, f := range moved {
		delete(s.files, b+"/"+f.path)
	}
	for _, f := range moved {
		if strings.HasSuffix(f.path, ".tmp") {
			f.since = time.Now() // a pattern has kept it until now
		}
		f.path = to + f.path[len(from):]
		s.files[b+"/"+f.path] = f
	}
}

// replace returns the store's operation for the rename of a file. A flushed object that it replaces
// stays until the renamed file has its name on the store. mu is held.
func (s *sim) replace(f *simFile, there []*simFile, to string, orphan bool) {
	var left bb.Flushed
	var attempts []bb.Content
	for _, r := range there {
		left, attempts = r.before(), r.entry().Unrecorded()
		delete(s.byID, r.id)
		s.f.Forget(r.key())
		if f.flushed.Generation == 0 {
			f.durable = map[string]bool{}
		}
		if len(r.durable) > 0 {
			maps.Copy(f.durable, r.durable)
			maps.Copy(f.durable, r.versions) // a later flush of it may have failed after its Put
		}
	}
	switch {
	case f.flushed.Generation != 0:
		s.record(f.buffer, storeop.Op{
			Kind: storeop.Rename, Old: f.path, New: to, Was: []bb.Flushed{f.flushed}, Attempts: f.entry().Unrecorded(),
			Replaces: []bb.Flushed{left}, ReplacedAttempts: attempts,
		})
		f.attempts = bb.AddContents(f.attempts, attempts...)
		return
	case orphan || f.concerned():
		s.record(f.buffer, f.removal())
		if len(there) == 0 {
			f.durable = map[string]bool{}
		}
	}
	f.left, f.attempts = left, attempts
}

// concerned reports whether the store may have something under the file's name, by the namespace.
func (f *simFile) concerned() bool {
	return f.before().Generation != 0 || f.lost || len(f.attempts) > 0
}

// removal returns the store's operation for the removal of a file.
func (f *simFile) removal() storeop.Op {
	return storeop.Op{Kind: storeop.Remove, Old: f.path, Was: []bb.Flushed{f.flushed, f.left}, Attempts: f.entry().Unrecorded()}
}

func (s *sim) remove(b, name string) {
	held, err := s.f.Hold(context.Background(), b, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fail("hold %s: %v", name, err)
		return
	}
	defer held.Release()
	gone := s.below(b, name)
	if len(gone) == 0 {
		return
	}
	s.note("remove %s/%s", b, name)
	tree := name == "d"
	for _, f := range gone {
		delete(s.files, b+"/"+f.path)
		delete(s.byID, f.id)
		s.f.Forget(f.key())
		if held.Orphan || f.concerned() {
			s.record(b, f.removal())
		}
	}
	if tree {
		s.record(b, storeop.Op{Kind: storeop.Remove, Old: name, Tree: true})
	}
}

// wait waits for one file, as a close with durability flushed does.
func (s *sim) wait(b, name string, patience time.Duration) {
	s.mu.Lock()
	f := s.files[b+"/"+name]
	var key flusher.Key
	if f != nil {
		key = f.key()
	}
	s.mu.Unlock()
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.f.Wait(ctx, key); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note("waited for %s/%s", b, name)
		saved := f.generation != key.Generation || s.byID[f.id] == nil || f.lost
		for _, got := range s.stores[b].Contents() { // a rename may be under way, so the name follows
			saved = saved || string(got) == f.content
		}
		if saved {
			return
		}
		s.fail("%s/%s was waited for, and %.40q is not on the store", b, name, f.content)
	}
}

// drain drains a buffer. If that succeeds the store equals the namespace.
func (s *sim) drain(b string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := s.f.Drain(ctx, b, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("drain %s: %v", b, err)
	if err == nil {
		s.compare(b, "after a drain that returned nil")
	}
}

// mustHave checks that the store has a file bit for bit under its name. mu is held.
func (s *sim) mustHave(f *simFile, why string) {
	if got, ok := s.stores[f.buffer].Contents()[f.path]; !ok || string(got) != f.content {
		s.fail("%s: %s/%s should be %.40q, the store has %.40q (there: %v)", why, f.buffer, f.path, f.content, got, ok)
	}
}

// compare checks that a buffer's store has its files and nothing else. mu is held.
func (s *sim) compare(b, why string) {
	for _, f := range s.files {
		if f.buffer == b && !strings.HasSuffix(f.path, ".tmp") && !f.lost {
			s.mustHave(f, why)
		}
	}
	for name, got := range s.stores[b].Contents() {
		f := s.files[b+"/"+name]
		if theirs, is := s.theirs[b+"/"+name]; is && theirs == string(got) {
			continue
		}
		if f == nil {
			s.fail("%s: the store has %s/%s, %.40q, which does not exist", why, b, name, got)
		}
	}
}

// check looks whether of every name of which something was durable something still is.
func (s *sim) check(buffer, after string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := map[string]bool{}
	contents := s.stores[buffer].Contents()
	for _, c := range contents {
		on[string(c)] = true
	}
	for name, theirs := range s.theirs {
		if of, at, _ := strings.Cut(name, "/"); of == buffer && string(contents[at]) != theirs {
			s.fail("after %s the store has %.40q under %s, where another program had put %q", after, contents[at], name, theirs)
			delete(s.theirs, name)
		}
	}
	for _, f := range s.files {
		if f.buffer != buffer || len(f.durable) == 0 {
			continue
		}
		some := false
		for c := range f.durable {
			some = some || on[c]
		}
		for c := range f.versions {
			some = some || on[c]
		}
		if !some {
			s.fail("after %s nothing of %s/%s is on the store any more, of which %d versions were durable", after, buffer, f.path, len(f.durable))
			clear(f.durable)
		}
	}
}

// end lets nothing fail any more, and expects everything to end well.
func (s *sim) end() {
	s.healed.Store(true)
	s.mu.Lock()
	s.note("nothing fails any more, and the other program removes what it has put")
	for _, name := range slices.Sorted(maps.Keys(s.theirs)) {
		b, at, _ := strings.Cut(name, "/")
		if err := s.stores[b].Remove(context.Background(), at); err != nil {
			s.fail("another program removes %s: %v", name, err)
		}
		delete(s.theirs, name)
	}
	var kept []string
	for _, f := range s.files {
		if strings.HasSuffix(f.path, ".tmp") {
			kept = append(kept, f.buffer+"/"+f.path)
		}
		if f.damaged { // its memory is repaired by being written again
			f.damaged = false
		}
	}
	s.mu.Unlock()
	for _, name := range kept { // no drain saves files that a pattern keeps back
		b, p, _ := strings.Cut(name, "/")
		s.remove(b, p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	for _, b := range simBuffers {
		report, err := s.f.Drain(ctx, b.name, nil)
		s.mu.Lock()
		if err != nil {
			s.fail("the drain of %s within %v of the last fault: %v (%+v, %+v)", b.name, endWithin, err, report, s.f.BufferStats(b.name))
		}
		s.compare(b.name, "at the end")
		s.mu.Unlock()
		if st := s.f.BufferStats(b.name); st.InFlight+st.Queued+st.StoreOps+st.Stalled != 0 {
			s.mu.Lock()
			s.fail("%s is drained, and there is still work: %+v", b.name, st)
			s.mu.Unlock()
		}
	}
	closing := time.Now()
	err := s.f.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := time.Since(closing); err != nil || took > simPatience {
		s.fail("Close: %v after %v", err, took)
	}
	if s.pinned != 0 {
		s.fail("%d jobs were not closed", s.pinned)
	}
	if len(s.journal) != 0 {
		s.fail("%d operations are still written down", len(s.journal))
	}
}

// fault is the fate of a call.
type fault int

const (
	none    fault = iota
	refused       // nothing happens
	full          // nothing happens, and only room helps
	slow          // it takes its time
	hangs         // no answer comes for long; then it is carried out
	unsaid        // it is carried out, and the answer is lost
	crashes       // it is carried out, and the daemon dies
)

// draw decides the fate of a call by the seed, and by the number of such calls before.
func (s *sim) draw(call, buffer, name string) (fault, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := call + " " + buffer + "/" + name
	s.calls[k]++
	if s.healed.Load() || buffer == "healthy" {
		return none, 0
	}
	if now := time.Now(); call != "done" && now.After(s.outage[0]) && now.Before(s.outage[1]) {
		return hangs, s.outage[1].Sub(now)
	}
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, k, s.calls[k])
	rng := rand.New(rand.NewPCG(h.Sum64(), s.seed))
	kind, d := none, time.Duration(0)
	switch n := rng.IntN(100); {
	case n < 12:
		kind = refused
	case n < 17:
		kind = full
	case n < 30:
		kind, d = slow, time.Duration(rng.IntN(1500))*time.Millisecond
	case n < 36:
		kind, d = hangs, 5*time.Second+time.Duration(rng.Int64N(int64(longestHang-5*time.Second)))
	case n < 44:
		kind = unsaid
	case n < 46:
		kind = crashes
	}
	s.note("%s: fault %d, %v", k, kind, d)
	return kind, d
}

// simStore is a store for one run of the daemon. Its calls take effect only while that run lasts.
// The death of a process ends its calls.
type simStore struct {
	*mem.Store
	s      *sim
	buffer string
	life   *atomic.Bool
}

var errDead = bb.E(bb.Unavailable, "store", "", "the daemon has died")

// call carries a call out, or not.
func (st *simStore) call(ctx context.Context, op, name string, do func() error) error {
	kind, d := st.s.draw(op, st.buffer, name)
	switch kind {
	case refused:
		return bb.E(bb.Unavailable, op, name, "refused")
	case full:
		return bb.E(bb.NoSpace, op, name, "the store is full")
	case slow:
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return bb.Wrap(op, name, ctx.Err())
		}
	case hangs: // even after the end of ctx
		time.Sleep(d)
	}
	if !st.life.Load() {
		return errDead
	}
	err := do()
	st.s.check(st.buffer, op+" "+name)
	switch kind {
	case unsaid:
		return bb.E(bb.Unavailable, op, name, "the answer was lost")
	case crashes:
		st.s.crash.Store(true)
		return bb.E(bb.Unavailable, op, name, "the daemon is dying")
	}
	return err
}

func (st *simStore) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (o backing.Object, err error) {
	err = st.call(ctx, "put", name, func() (err error) {
		o, err = st.Store.Put(context.WithoutCancel(ctx), name, src, opts)
		return err
	})
	return o, err
}

func (st *simStore) Rename(ctx context.Context, from, to string) error {
	return st.call(ctx, "rename", from+" "+to, func() error { return st.Store.Rename(context.WithoutCancel(ctx), from, to) })
}

func (st *simStore) RenameIf(ctx context.Context, from, to string, is, replaces backing.Version) error {
	return st.call(ctx, "rename", from+" "+to, func() error { return st.Store.RenameIf(context.WithoutCancel(ctx), from, to, is, replaces) })
}

func (st *simStore) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	return st.call(ctx, "remove", name, func() error { return st.Store.RemoveIf(context.WithoutCancel(ctx), name, is) })
}

func (st *simStore) Stat(ctx context.Context, name string) (o backing.Object, err error) {
	if err := ctx.Err(); err != nil {
		return o, bb.Wrap("stat", name, err)
	}
	err = st.call(ctx, "stat", name, func() (err error) {
		o, err = st.Store.Stat(context.WithoutCancel(ctx), name)
		return err
	})
	return o, err
}

func (st *simStore) Remove(ctx context.Context, name string) error {
	return st.call(ctx, "remove", name, func() error { return st.Store.Remove(context.WithoutCancel(ctx), name) })
}

func (st *simStore) RemoveTree(ctx context.Context, name string) error {
	return st.call(ctx, "remove tree", name, func() error { return st.Store.RemoveTree(context.WithoutCancel(ctx), name) })
}

func (st *simStore) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	return st.call(ctx, "make directory", name, func() error { return st.Store.MakeDir(context.WithoutCancel(ctx), name, opts) })
}

func (st *simStore) RemoveDir(ctx context.Context, name string) error {
	return st.call(ctx, "remove directory", name, func() error { return st.Store.RemoveDir(context.WithoutCancel(ctx), name) })
}

// simCatalog is the namespace as one life of the daemon meets it.
type simCatalog struct {
	s    *sim
	life *atomic.Bool
}

func (c simCatalog) Begin(_ context.Context, k flusher.Key) (upload.Job, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	f := c.s.byID[k.File]
	switch {
	case !c.life.Load():
		return nil, errDead
	case f == nil || f.generation != k.Generation || f.lost:
		return nil, bb.E(bb.NotFound, "flush", k.File.String(), "is gone")
	case f.flushed.Generation == f.generation:
		return nil, bb.E(bb.Exists, "flush", k.File.String(), "is flushed already")
	}
	c.s.pinned++
	return &simJob{c: c, f: f, path: f.path, content: f.content, generation: f.generation, before: f.before(), attempts: f.entry().Unrecorded()}, nil
}

func (c simCatalog) Recorded(_ context.Context, k flusher.Key) (bool, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	f := c.s.byID[k.File]
	return f != nil && f.flushed.Generation != 0, nil
}

type simJob struct {
	c          simCatalog
	f          *simFile
	path       string
	content    string
	generation bb.Generation
	before     bb.Flushed
	attempts   []bb.Content
}

func (j *simJob) Attempts() []bb.Content { return j.attempts }

func (j *simJob) Path() string         { return j.path }
func (j *simJob) Previous() bb.Flushed { return j.before }

func (j *simJob) damaged() bool {
	j.c.s.mu.Lock()
	defer j.c.s.mu.Unlock()
	return j.f.damaged && j.f.generation == j.generation
}

func (j *simJob) Damage(context.Context, func()) error {
	if j.damaged() {
		return bb.E(bb.Checksum, "verify", j.path, "its memory is damaged")
	}
	return nil
}

// otherSum is a source with bytes that do not match its checksum.
type otherSum struct{ backing.Source }

func (s otherSum) Checksum() uint64 { return ^s.Source.Checksum() }

func (j *simJob) Source() backing.Source {
	src := backing.NewBytes([]byte(j.content))
	if j.damaged() {
		return otherSum{src}
	}
	return src
}

// Done records a flush, unless the namespace does not answer.
func (j *simJob) Done(_ context.Context, flushed bb.Flushed) error {
	kind, _ := j.c.s.draw("done", j.f.buffer, path.Base(j.path))
	s := j.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byID[j.f.id]
	switch {
	case !j.c.life.Load():
		return errDead
	case kind == refused:
		return bb.E(bb.Unavailable, "flush", j.path, "the namespace does not answer")
	case kind == crashes: // between the Put and its record
		s.crash.Store(true)
		return errDead
	case f == nil:
		return bb.E(bb.NotFound, "flush", j.path, "is gone")
	case f.path != j.path:
		s.fail("%s/%s was renamed to %s in the middle of its flush", f.buffer, j.path, f.path)
	}
	if got := string(s.stores[f.buffer].Contents()[j.path]); got != j.content {
		s.fail("recorded as flushed: %s/%s should be %.40q, the store has %.40q", f.buffer, j.path, j.content, got)
	}
	s.note("flushed %s/%s %v/%v", f.buffer, j.path, uint64(f.id), uint64(j.generation))
	flushed.Generation = j.generation
	f.flushed, f.left, f.attempts = flushed, bb.Flushed{}, nil
	f.durable[j.content] = true
	if waited := time.Since(f.since); f.buffer == "healthy" && f.generation == j.generation && !s.healed.Load() && waited > healthyWithin {
		s.fail("%s/%s, whose store never fails, waited %v for its flush", f.buffer, j.path, waited)
	}
	if kind == unsaid {
		return bb.E(bb.Unavailable, "flush", j.path, "the answer was lost")
	}
	return nil
}

func (j *simJob) Close() {
	j.c.s.mu.Lock()
	defer j.c.s.mu.Unlock()
	if j.c.life.Load() {
		j.c.s.pinned--
	}
}
