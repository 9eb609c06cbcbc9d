package clustertest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"forebay/client"
)

// slack is the time by which an operation may exceed its deadline. It is the delay on a busy
// machine.
const slack = 2 * time.Second

// World has the faults of the cluster, and the knowledge of it besides journals.
type World struct {
	// Gone has the times when nodes lost their memory for good (Now, before the kill).
	Gone map[string]int64
	// Unreachable nodes run, but the observed ones do not reach them.
	Unreachable []string
	// Copies of each byte on different nodes (the buffer's replicas). 0 means 1. So many nodes of
	// those that hold a file have to go until it may be lost.
	Copies int
	// Store holds the contents found under final names in the backing store. It is nil if it was not read.
	Store map[string][]byte
	// Drained: a drain of everything succeeded after the last operation, and before Store was read.
	Drained bool
	// Unsaved are the paths that the drain named as not saved.
	Unsaved []string
	// Looks are earlier contents of the store.
	Looks []StoreLook
}

// Seen is an observer's finding at a path.
type Seen struct {
	Version Version
	Kind    client.Kind // of the error that reading it was; 0: none
	Why     string
	Holders []string
}

// Observation is all that one node shows, when nothing changes any more.
type Observation struct {
	Node  string
	Files map[string]Seen // by path
	Lost  []string        // files that are reported as lost, by path
	Slow  []string        // operations that exceeded their deadline
}

// Verdict is the result of Check.
type Verdict struct {
	Violations  []string              // broken rules
	Contents    []string              // broken rules of durabletest; many of them are in Violations, too
	Outcomes    map[Op]map[string]int // how many operations ended how
	Longest     map[Op]time.Duration  // that an operation took
	Files       int                   // that there should be, at least
	Lost        []string              // files, rightly lost
	Unavailable []string              // files, rightly unavailable from some node
}

// Check compares the answers to clients with the observations afterwards, and with each other. Its
// rules:
//
//   - a path holds a version that it can hold after the acknowledged changes, whole; the same
//     on every node; an operation of unknown outcome was done as a whole or not;
//   - each file read or listed meanwhile was there at some moment of the operation;
//   - of exclusive creations of a path one succeeded at most, and the others failed after
//     it had begun;
//   - lost are only files with a holder that is gone, files not in the store, and files
//     listed as lost; unavailable in the end are only files with an unreachable holder;
//   - every error is one that a fault explains;
//   - every operation ended in time;
//   - the store holds whole versions that were written to the file under that name, or under
//     the one that it was renamed from.
//
// Contents are checked by durabletest besides.
func Check(journals []Journal, observations []Observation, w World) Verdict {
	k := newChecker(journals, w)
	for _, j := range journals {
		for i := range j.Records {
			k.record(j, &j.Records[i])
		}
	}
	k.seen(observations)
	k.store()
	k.durable(journals, observations)
	for p := range k.effects {
		if !k.candidates(p, forever, forever)[Absent] {
			k.Files++
		}
	}
	return k.Verdict
}

// forever is the end of an operation of unknown outcome.
const forever = math.MaxInt64

// effect is the certain or possible effect of an operation on a path.
type effect struct {
	*Record
	end     int64
	version Version
	makes   bool // where nothing was, an empty file may be before the version is
}

// set is a set.
type set[K comparable] map[K]bool

type checker struct {
	Verdict
	world    World
	effects  map[string][]effect     // by path, as they began
	holders  map[string]set[string]  // by path: its reported holders
	attempts map[string][]*Record    // by path: exclusive creations
	final    map[string]set[Version] // by path: versions seen there, Absent for not found
}

func newChecker(journals []Journal, w World) *checker {
	k := &checker{
		world: w, effects: map[string][]effect{}, holders: map[string]set[string]{},
		attempts: map[string][]*Record{}, final: map[string]set[Version]{},
	}
	k.Outcomes, k.Longest = map[Op]map[string]int{}, map[Op]time.Duration{}
	for _, j := range journals {
		for i := range j.Records {
			k.learn(&j.Records[i])
		}
	}
	for p := range k.attempts {
		k.creations(p)
	}
	for p := range k.effects {
		slices.SortStableFunc(k.effects[p], func(a, b effect) int { return cmp.Compare(a.Begin, b.Begin) })
	}
	return k
}

func (k *checker) wrong(format string, args ...any) {
	k.Violations = append(k.Violations, "broken promise: "+fmt.Sprintf(format, args...))
}

// learn records the certain and possible changes of an operation.
func (k *checker) learn(r *Record) {
	if r.Op == Create {
		k.attempts[r.Path] = append(k.attempts[r.Path], r)
		if r.Outcome == client.ErrExists.String() {
			return
		}
	}
	end := r.End
	if r.Outcome != OK {
		end = forever
	}
	add := func(path string, v Version, makes bool) {
		k.effects[path] = append(k.effects[path], effect{r, end, v, makes})
	}
	switch r.Op {
	case Put, Sync, Create:
		add(r.Path, r.Version, true)
		k.hold(r.Path, r.Holders)
		if len(r.Holders) == 0 {
			k.hold(r.Path, []string{r.Node})
		}
	case Rename:
		add(r.Path, Absent, false)
		add(r.To, r.Version, false)
		k.hold(r.To, slices.Collect(maps.Keys(k.holders[r.Path])))
	case Remove:
		add(r.Path, Absent, false)
	}
}

func (k *checker) hold(path string, nodes []string) {
	if k.holders[path] == nil {
		k.holders[path] = set[string]{}
	}
	for _, n := range nodes {
		k.holders[path][n] = true
	}
}

// creations checks the exclusive creations of a path, which is never removed.
func (k *checker) creations(path string) {
	var winners []*Record
	for _, r := range k.attempts[path] {
		if r.Outcome == OK {
			winners = append(winners, r)
		}
	}
	if len(winners) > 1 {
		k.wrong("%s: %d exclusive creations succeeded, with %v and %v", path, len(winners), winners[0].Version, winners[1].Version)
	}
	for _, r := range k.attempts[path] {
		if r.Outcome != client.ErrExists.String() {
			continue
		}
		may := func(other *Record) bool {
			return other != r && other.Outcome != client.ErrExists.String() && other.Begin <= r.End &&
				(len(winners) == 0 || other.Outcome == OK)
		}
		if !slices.ContainsFunc(k.attempts[path], may) {
			k.wrong("%s: an exclusive creation failed with exists, and nobody had begun to make it", path)
		}
	}
	if len(winners) == 1 { // then the others have made nothing
		k.effects[path] = slices.DeleteFunc(k.effects[path], func(e effect) bool { return e.Record != winners[0] })
	}
}

// candidates are the versions that a path may have had at some moment of a time.
func (k *checker) candidates(path string, begin, end int64) set[Version] {
	before := Absent
	all, makes := set[Version]{}, false
	for _, e := range k.effects[path] {
		switch {
		case e.end < begin:
			before = e.version
		case e.Begin <= end:
			all[e.version] = true
			makes = makes || e.makes
		}
	}
	all[before] = true
	if makes && all[Absent] {
		all[Empty] = true
	}
	return all
}

// record checks one operation by itself.
func (k *checker) record(j Journal, r *Record) {
	who := fmt.Sprintf("%s #%d: %s %s", j.Client, r.ID, r.Op, r.Path)
	k.inTime(j, r, who)
	if r.End == 0 {
		return
	}
	if k.Outcomes[r.Op] == nil {
		k.Outcomes[r.Op] = map[string]int{}
	}
	k.Outcomes[r.Op][r.Outcome]++
	k.Longest[r.Op] = max(k.Longest[r.Op], time.Duration(r.End-r.Begin))
	switch r.Outcome {
	case OK:
		k.found(r, who)
	case client.ErrUnavailable.String(), client.ErrCancelled.String(), client.ErrBusy.String(), client.ErrNoSpace.String():
		// A fault explains it, or pressure. A test that had none checks Outcomes.
	case client.ErrLost.String():
		if !k.gone(r.Path, nil, r.End) {
			k.wrong("%s: lost, with holders %v alive: %s", who, k.named(r.Path), r.Why)
		}
	case client.ErrExists.String():
		if r.Op != Create {
			k.wrong("%s: %s", who, r.Why)
		}
	case client.ErrNotFound.String():
		if r.Op == List { // its client has not made it yet, so that nothing can be in it
			k.found(r, who)
			return
		}
		if may := k.candidates(r.Path, r.Begin, r.End); r.Op != Read || !may[Absent] {
			k.wrong("%s: not found, and it held %v: %s", who, versions(may), r.Why)
		}
	default:
		k.wrong("%s: no fault explains the error: %s", who, r.Why)
	}
}

func (k *checker) inTime(j Journal, r *Record, who string) {
	until := r.End
	switch {
	case until == 0 && j.Killed == 0:
		k.wrong("%s: it never ended", who)
		return
	case until == 0:
		until = j.Killed
	}
	if took := time.Duration(until - r.Begin); took > r.Deadline+slack {
		k.wrong("%s: it took %v, and had %v", who, took, r.Deadline)
	}
}

// found checks reads and listings.
func (k *checker) found(r *Record, who string) {
	switch r.Op {
	case Read:
		if may := k.candidates(r.Path, r.Begin, r.End); !may[r.Version] {
			k.wrong("%s: read %v; it held %v then", who, r.Version, versions(may))
		}
	case List:
		listed := set[string]{}
		for _, name := range r.Names {
			p := path.Join(r.Path, name)
			if listed[p] {
				k.wrong("%s: %s is listed twice", who, name)
			}
			listed[p] = true
			if may := k.candidates(p, r.Begin, r.End); len(may) == 1 && may[Absent] {
				k.wrong("%s: %s is listed, and was not there", who, name)
			}
		}
		for p := range k.effects {
			if path.Dir(p) == r.Path && !listed[p] {
				if may := k.candidates(p, r.Begin, r.End); !may[Absent] {
					k.wrong("%s: %s is not listed, and held %v all the time", who, path.Base(p), versions(may))
				}
			}
		}
	}
}

// gone reports whether so many of a path's holders were gone at some time that its
// bytes may be.
func (k *checker) gone(path string, also []string, at int64) bool {
	holders := maps.Clone(k.holders[path])
	if holders == nil {
		holders = set[string]{}
	}
	for _, h := range also {
		holders[h] = true
	}
	n := 0
	for h := range holders {
		if when, is := k.world.Gone[h]; is && when <= at {
			n++
		}
	}
	return n >= max(1, k.world.Copies)
}

func (k *checker) named(path string) []string { return slices.Sorted(maps.Keys(k.holders[path])) }

// seen checks the final state.
func (k *checker) seen(observations []Observation) {
	all := set[string]{}
	for p := range k.effects {
		all[p] = true
	}
	for _, o := range observations {
		for p := range o.Files {
			all[p] = true
		}
		for _, what := range o.Slow {
			k.wrong("seen from %s: %s", o.Node, what)
		}
		for _, p := range o.Lost {
			if o.Files[p].Kind != client.ErrLost {
				k.wrong("seen from %s: %s is listed as lost, and is %v", o.Node, p, o.Files[p])
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(all)) {
		k.final[p] = set[Version]{}
		lost, unavailable := false, false
		for _, o := range observations {
			kind := k.look(o, p)
			lost = lost || kind == client.ErrLost
			unavailable = unavailable || kind == client.ErrUnavailable
		}
		if lost {
			k.Lost = append(k.Lost, p)
		}
		if unavailable {
			k.Unavailable = append(k.Unavailable, p)
		}
		switch {
		case len(k.final[p]) > 1:
			k.wrong("%s: different nodes see %v", p, versions(k.final[p]))
		case lost && len(k.final[p]) > 0:
			k.wrong("%s: lost, and %v on another node", p, versions(k.final[p]))
		}
	}
	k.renames()
}

// look checks one observer's view of a path.
func (k *checker) look(o Observation, p string) client.Kind {
	s, is := o.Files[p]
	if !is {
		s.Kind = client.ErrNotFound
	}
	may := k.candidates(p, forever, forever)
	switch s.Kind {
	case 0:
		k.final[p][s.Version] = true
		if !may[s.Version] {
			k.wrong("%s, seen from %s: %v; it may hold %v", p, o.Node, s.Version, versions(may))
		}
	case client.ErrNotFound:
		k.final[p][Absent] = true
		if !may[Absent] {
			k.wrong("%s, seen from %s: nothing; it may hold %v", p, o.Node, versions(may))
		}
	case client.ErrLost:
		k.lost(o, p, s, may)
	case client.ErrUnavailable:
		unreachable := func(h string) bool { return slices.Contains(k.world.Unreachable, h) }
		if !slices.ContainsFunc(append(k.named(p), s.Holders...), unreachable) {
			k.wrong("%s, seen from %s: unavailable, with holders %v and %v reachable: %s", p, o.Node, k.named(p), s.Holders, s.Why)
		}
	default:
		k.wrong("%s, seen from %s: %s", p, o.Node, s.Why)
	}
	return s.Kind
}

// lost checks whether a file may be lost.
func (k *checker) lost(o Observation, p string, s Seen, may set[Version]) {
	if len(may) == 1 && may[Absent] {
		k.wrong("%s, seen from %s: lost, and nothing should be there", p, o.Node)
	}
	if !k.gone(p, s.Holders, forever) {
		k.wrong("%s, seen from %s: lost, with holders %v and %v alive: %s", p, o.Node, k.named(p), s.Holders, s.Why)
	}
	if !slices.Contains(o.Lost, p) {
		k.wrong("%s, seen from %s: lost, and not listed as lost", p, o.Node)
	}
	if text, is := k.world.Store[p]; is {
		if v, err := Identify(text); err == nil && len(may) == 1 && may[v] {
			k.wrong("%s, seen from %s: lost, and the store holds it", p, o.Node)
		}
	}
}

// renames checks those that may or may not have been done, since they are one change of two names.
func (k *checker) renames() {
	for from, effects := range k.effects {
		for _, e := range effects {
			if e.Op != Rename || e.Path != from || e.end != forever || len(k.final[from]) != 1 || len(k.final[e.To]) != 1 {
				continue
			}
			stayed, came := !k.final[from][Absent], k.final[e.To][e.Record.Version]
			if stayed == came {
				k.wrong("%s: half renamed to %s: it holds %v, and that %v", from, e.To, versions(k.final[from]), versions(k.final[e.To]))
			}
		}
	}
}

// store checks the backing store's content.
func (k *checker) store() {
	for p, text := range k.world.Store {
		v, err := Identify(text)
		if err != nil || v != Empty && !k.ever(p, v, set[string]{}) {
			k.wrong("%s in the store: %v (%v), which was never there", p, v, err)
		}
	}
	if !k.world.Drained {
		return
	}
	for p := range k.effects {
		v := Absent
		if text, is := k.world.Store[p]; is {
			v, _ = Identify(text) // checked above
		}
		if may := k.candidates(p, forever, forever); !may[v] && !slices.Contains(k.Lost, p) {
			k.wrong("%s in the store after a drain: %v; it may hold %v", p, v, versions(may))
		}
	}
}

// ever reports whether a file that has had a path has ever held a version, under this name or one
// before. A rename takes along the store's object of the file, which is older if the newest was not
// flushed yet.
func (k *checker) ever(path string, v Version, visited set[string]) bool {
	visited[path] = true
	return slices.ContainsFunc(k.effects[path], func(e effect) bool {
		return e.version == v || e.Op == Rename && e.To == path && !visited[e.Path] && k.ever(e.Path, v, visited)
	})
}

func versions(s set[Version]) string {
	var names []string
	for v := range s {
		names = append(names, v.String())
	}
	slices.Sort(names)
	return strings.Join(names, " or ")
}
