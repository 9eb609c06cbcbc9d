package durabletest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Rule names a guarantee.
type Rule string

// The rules.
const (
	// Stays: once something of a name is durable, some durable version of that name exists until a
	// request for its removal. Durable are versions that were confirmed by a drain, by a flushed
	// close, or by the state of the file. An object whose flush is not recorded may go with a
	// rename or removal of its name, and not otherwise.
	Stays Rule = "stays durable"
	// Stored: files that a drain or a flushed close confirmed are on the store, bit for bit, or
	// newer ones are. Files that a stage-out confirmed are in its folder. Never a part of a
	// version, or a mix of several.
	Stored Rule = "stored"
	// Named: absent files are named as lost, and may be lost.
	Named Rule = "named"
	// Kept: acknowledged bytes are read, or newer ones, and never zeros, older bytes or a mix. An
	// atomic change is there as a whole or not at all.
	Kept Rule = "kept"
	// Gone: a removed name does not come back.
	Gone Rule = "gone"
)

// Violation is a broken guarantee.
type Violation struct {
	Rule Rule
	Path string
	What string
}

// String begins with words that tools/testrun recognizes, since a test that prints them has failed
// for good.
func (v Violation) String() string {
	return fmt.Sprintf("broken promise: %s: %s: %s", v.Rule, v.Path, v.What)
}

// Check returns the guarantees that observations show to be broken, given a history.
func Check(events []Event, seen []Observation) []Violation {
	k := newChecker()
	for _, e := range events {
		if e.Outcome == Unknown && e.End == 0 {
			e.End = Forever
		}
		k.add(e)
	}
	var all []Violation
	for _, o := range slices.SortedStableFunc(slices.Values(seen), func(a, b Observation) int { return cmp.Compare(a.Begin, b.Begin) }) {
		all = append(all, k.judge(&o)...)
	}
	return all
}

// checker has a history by path.
type checker struct {
	effects map[string][]effect
	flushes []*Event
	copies  []*Event // stage-outs
	faults  []*Event
	open    []*Event          // whose outcome may come yet
	cleans  map[string]*Event // the last time that a file was clean for a client
	stored  map[string]sighting
	came    map[string]set // versions that a rename may have brought to a name
}

type set = map[Version]bool

// effect is a possible effect of an event on a path, or an observation of it.
type effect struct {
	*Event
	version Version
	from    string // of a rename: the name before
	to      string // of a rename: the name afterwards
}

// promised returns the level that was acknowledged. A commit that was cut off may be in memory
// alone.
func (e *Event) promised() Level {
	if e.Outcome != Done {
		return InMemory
	}
	return e.Keeps
}

// sighting is the time at which a version, or nothing, was last found on the store.
type sighting struct {
	at      int64
	version Version
}

func newChecker() *checker {
	return &checker{effects: map[string][]effect{}, cleans: map[string]*Event{}, stored: map[string]sighting{}, came: map[string]set{}}
}

func (k *checker) add(e Event) *Event {
	p := &e
	if p.Keeps == 0 {
		p.Keeps = InMemory
	}
	switch p.Op {
	case Fault:
		k.faults = append(k.faults, p)
	case Drain:
		k.flushes = append(k.flushes, p)
	case StageOut:
		k.copies, k.open = append(k.copies, p), append(k.open, p)
	default:
		k.open = append(k.open, p)
		for _, c := range p.Changes {
			f := effect{Event: p, version: c.Version}
			if p.Op == Rename {
				f.from, f.to = p.Changes[0].Path, p.Changes[1].Path
			}
			k.effects[c.Path] = append(k.effects[c.Path], f)
		}
	}
	return p
}

func (k *checker) over(now int64) {
	for _, e := range k.open {
		if e.Outcome == Unknown && e.End == Forever {
			e.End = now
		}
	}
	k.open = nil
}

// possible returns the effects that a path may have shown at some moment of a time.
// Before the first of them it was absent.
func (k *checker) possible(path string, begin, end int64) []effect {
	certain := int64(-1) // when the last one began that was over before
	for _, e := range k.effects[path] {
		if e.Outcome == Done && e.End < begin {
			certain = max(certain, e.Begin)
		}
	}
	var all []effect
	if certain < 0 {
		all = append(all, effect{Event: &Event{Outcome: Done}})
	}
	for _, e := range k.effects[path] {
		if e.Outcome != Failed && e.Begin <= end && e.End >= certain {
			all = append(all, e)
		}
	}
	return all
}

func versions(effects []effect) set {
	all := set{}
	for _, e := range effects {
		all[e.version] = true
	}
	return all
}

func (k *checker) judge(o *Observation) []Violation {
	j := &judge{checker: k, Observation: o, lost: map[string]bool{}, rescued: set{}}
	for _, p := range o.Lost {
		j.lost[p] = true
	}
	for p, f := range o.Files {
		if strings.HasPrefix(p, LostAndFound) {
			j.rescued[f.Version] = true
		}
	}
	switch {
	case o.Store:
		j.store()
	case o.Copy != "":
		j.copied()
	default:
		j.buffer()
	}
	slices.SortStableFunc(j.violations, func(a, b Violation) int { return cmp.Compare(a.Path, b.Path) })
	return j.violations
}

// judge checks one observation.
type judge struct {
	*checker
	*Observation
	lost       map[string]bool
	rescued    set
	violations []Violation
}

func (j *judge) wrong(r Rule, path, format string, args ...any) {
	j.violations = append(j.violations, Violation{r, path, fmt.Sprintf(format, args...)})
}

// buffer checks a client's observation.
func (j *judge) buffer() {
	for p, f := range j.Files {
		if !strings.HasPrefix(p, LostAndFound) {
			j.file(p, f)
		}
	}
	if !j.Live {
		j.atOnce()
	}
	for p, f := range j.Files {
		if f.Problem == "" { // from now on this is known
			seen := &Event{Op: "seen", Begin: j.Begin, End: j.End, Outcome: Done, Keeps: j.keeps(p, f.Version)}
			j.effects[p] = append(j.effects[p], effect{Event: seen, version: f.Version})
		}
		if f.Clean {
			j.cleans[p] = &Event{Op: Clean, Begin: j.Begin, End: j.End, Outcome: Done}
		}
	}
}

// keeps returns the level of a version that was found.
func (j *judge) keeps(p string, v Version) Level {
	best := InMemory
	for _, e := range j.effects[p] {
		if e.version == v {
			best = max(best, e.promised())
		}
	}
	return best
}

// file checks one name.
func (j *judge) file(p string, f Found) {
	effects := j.possible(p, j.Begin, j.End)
	may := versions(effects)
	switch {
	case f.Problem == Lost:
		j.isLost(p, effects)
	case f.Problem != "":
		j.wrong(Kept, p, "it cannot be read (%s); it holds %v", f.Text, list(may))
	case may[f.Version] || j.forgotten(p, may):
	case !f.Version.There && j.mayBeLost(effects) == nil && j.lost[p]:
	case !f.Version.There:
		j.wrong(Named, p, "it is absent, and not named lost; it holds %v", list(may))
	case len(may) == 1 && may[Absent]:
		j.wrong(Gone, p, "it was removed, or never made, and holds %v: %s", f.Version, f.Text)
	case j.was(p, f.Version):
		j.wrong(Kept, p, "it holds older bytes, %v, not %v: %s", f.Version, list(may), f.Text)
	default:
		j.wrong(Kept, p, "it holds %v, not %v: %s", f.Version, list(may), f.Text)
	}
}

// forgotten reports whether a namespace that forgets explains the observation. Then missing files
// are below LostAndFound or named.
func (j *judge) forgotten(p string, may set) bool {
	if !slices.ContainsFunc(j.faults, func(f *Event) bool { return f.Forgets && f.Begin <= j.End }) {
		return false
	}
	for v := range may {
		if v.There && j.rescued[v] {
			return true
		}
	}
	return j.lost[p]
}

// was reports whether a name ever held a version.
func (j *judge) was(p string, v Version) bool {
	return slices.ContainsFunc(j.effects[p], func(e effect) bool { return e.version == v && e.Op != "seen" })
}

func (j *judge) isLost(p string, effects []effect) {
	if why := j.mayBeLost(effects); why != nil {
		j.wrong(Named, p, "it is called lost, and %v", why)
	}
	if !j.lost[p] {
		j.wrong(Named, p, "reading it says lost, and it is not listed")
	}
	if f := j.flushed(p); f != nil && !slices.ContainsFunc(effects, func(e effect) bool { return e.version.There && e.End >= f.at }) {
		j.wrong(Stored, p, "it is called lost, and the %s before had it on the store", f.Op)
	}
}

// mayBeLost returns why bytes may not be lost.
func (j *judge) mayBeLost(effects []effect) error {
	there := false
	for _, e := range effects {
		if !e.version.There {
			continue
		}
		there = true
		for _, f := range j.faults {
			if f.Takes >= e.promised() && f.Begin <= j.End && e.Begin <= f.End && (f.Node == "" || len(e.Holders) == 0 || slices.Contains(e.Holders, f.Node)) {
				return nil
			}
		}
	}
	if !there {
		return fmt.Errorf("there should be nothing")
	}
	return fmt.Errorf("no fault has taken what holds it")
}

// atOnce checks changes that come together, renames and transactions.
func (j *judge) atOnce() {
	judged := map[*Event]bool{}
	for p := range j.Files {
		for _, e := range j.effects[p] {
			if len(e.Changes) > 1 && !judged[e.Event] && e.Outcome != Failed && e.Begin <= j.End {
				judged[e.Event] = true
				j.whole(e.Event)
			}
		}
	}
}

// whole checks whether all changes of an event were found, or none.
func (j *judge) whole(e *Event) {
	var with, without []string
	for _, c := range e.Changes {
		f, looked := j.Files[c.Path]
		if !looked || f.Problem != "" {
			return
		}
		others := set{}
		for _, o := range j.possible(c.Path, j.Begin, j.End) {
			if o.Event != e {
				others[o.version] = true
			}
		}
		switch made := f.Version == c.Version; {
		case made && !others[f.Version]:
			with = append(with, c.Path)
		case !made:
			without = append(without, c.Path)
			if !others[f.Version] || j.newer(c.Path, f.Version, e) {
				return // checked by itself, or changed again since
			}
		}
	}
	if len(with) > 0 && len(without) > 0 {
		j.wrong(Kept, with[0], "a %s is there in part: not of %v", e.Op, without)
	}
}

// newer reports whether a version may have come to a path after an event.
func (j *judge) newer(p string, v Version, than *Event) bool {
	return slices.ContainsFunc(j.effects[p], func(e effect) bool {
		return e.Event != than && e.version == v && e.Outcome != Failed && e.End >= than.Begin && e.Begin <= j.End
	})
}

// promise is an event that put the version of a time on the store.
type promise struct {
	*Event
	at int64
}

// flushed returns the last promise for a path before the observation.
func (j *judge) flushed(p string) *promise {
	var last *promise
	better := func(e *Event, at int64) {
		if e.Outcome == Done && e.End < j.Begin && (last == nil || at > last.at) {
			last = &promise{e, at}
		}
	}
	for _, e := range j.flushes {
		if covers(e, p) {
			better(e, e.Begin)
		}
	}
	if e := j.cleans[p]; e != nil {
		better(e, e.Begin)
	}
	for _, e := range j.effects[p] {
		if e.Keeps == OnStore && e.version.There && e.Op != "seen" {
			better(e.Event, e.End+1)
		}
	}
	return last
}

// covers reports whether a drain or a stage-out that is done has saved a name.
func covers(e *Event, p string) bool { return below(e.Below, p) && !slices.Contains(e.Unsaved, p) }

// below reports whether a path is a directory or lies in it. "" is everything.
func below(dir, p string) bool { return dir == "" || p == dir || strings.HasPrefix(p, dir+"/") }

// store checks the store's content.
func (j *judge) store() {
	paths := j.paths()
	for p := range paths {
		if !strings.HasPrefix(p, LostAndFound) {
			j.object(p, j.Files[p])
		}
	}
	for p := range paths {
		j.stored[p] = sighting{j.Begin, j.Files[p].Version}
	}
}

// paths returns the names that have a history or were found.
func (j *judge) paths() map[string]bool {
	paths := map[string]bool{}
	for p := range j.effects {
		paths[p] = true
	}
	for p := range j.Files {
		paths[p] = true
	}
	return paths
}

// object checks one name of the store.
func (j *judge) object(p string, f Found) {
	had, looked := j.stored[p]
	if f.Version.There {
		if !j.ever(p, f.Version, map[string]bool{}) {
			j.wrong(Stored, p, "the store holds %v, which is no version of it: %s", f.Version, f.Text)
			return
		}
		if looked && !had.version.There && j.onlyAbsent(p, had.at, j.End) && !j.comesBy(p, f.Version, had.at) {
			j.wrong(Gone, p, "it was removed, had left the store, and is there again: %v: %s", f.Version, j.story(p, had.at))
			return
		}
	}
	done := j.flushed(p)
	if done != nil {
		j.afterFlush(p, f, done)
	}
	if f.Version.There || done != nil && j.onlyAbsent(p, done.at, j.End) {
		return
	}
	if had.version.There && !j.touched(p, had) {
		j.wrong(Stays, p, "%v was on the store at %d, nothing has touched the name, and it is not there: %s", had.version, had.at, j.story(p, had.at))
		return
	}
	// Something of the name was durable. The question is whether a request removes it.
	if done == nil || versions(j.possible(p, done.at, max(done.at, done.End)))[Absent] {
		return
	}
	if !j.released(p, done.at, map[string]bool{}) {
		j.wrong(Stays, p, "it was on the store, nobody has asked for its removal, and it is not there: %s", j.story(p, done.at))
	}
}

// afterFlush checks the object under a name for which a flush has ended.
func (j *judge) afterFlush(p string, f Found, done *promise) {
	effects := j.possible(p, done.at, j.End)
	may := versions(effects)
	switch {
	case may[f.Version]:
	case !f.Version.There: // checked by Stays
	case len(may) == 1 && may[Absent]:
		j.wrong(Gone, p, "it was removed before a %s that is done, and the store holds %v", done.Op, f.Version)
	case slices.ContainsFunc(effects, func(e effect) bool {
		return e.Op == Rename && e.to == p && e.End >= done.at && j.ever(e.from, f.Version, map[string]bool{})
	}): // a rename since takes along the store's object
	default:
		j.wrong(Stored, p, "the store holds %v after a %s that is done, not %v: %s", f.Version, done.Op, list(may), f.Text)
	}
}

// ever reports whether a name, or one that was renamed to it, has ever held a version.
func (j *judge) ever(p string, v Version, visited map[string]bool) bool {
	visited[p] = true
	return slices.ContainsFunc(j.effects[p], func(e effect) bool {
		return e.Outcome != Failed && e.Begin <= j.End &&
			(e.version == v || e.Op == Rename && e.to == p && !visited[e.from] && j.ever(e.from, v, visited))
	})
}

func (j *judge) onlyAbsent(p string, begin, end int64) bool {
	may := versions(j.possible(p, begin, end))
	return len(may) == 1 && may[Absent]
}

// touched reports whether something since its version was made allows an object found on the store
// to go, although it was never confirmed as durable. That is a rename or removal of the name, which
// takes away unrecorded objects, or a fault that takes more than a daemon's life.
func (j *judge) touched(p string, had sighting) bool {
	made := int64(math.MaxInt64)
	for _, e := range j.effects[p] {
		if e.version == had.version && e.Op != "seen" && e.Begin <= had.at {
			made = e.Begin // the last one
		}
	}
	return slices.ContainsFunc(j.faults, func(f *Event) bool { return f.Takes > 0 && f.End >= had.at && f.Begin <= j.End }) ||
		made == math.MaxInt64 || slices.ContainsFunc(j.effects[p], func(e effect) bool {
		return (e.Op == Rename || e.Op == Remove || e.Op == Txn) && e.Outcome != Failed && e.End >= made && e.Begin <= j.End
	})
}

// released reports whether the removal of a name was requested since a time, or whether its file
// has another name now. An earlier file that was replaced by another goes when its name does, since
// the file that takes the name along is another one.
func (j *judge) released(p string, since int64, visited map[string]bool) bool {
	visited[p] = true
	return slices.ContainsFunc(j.effects[p], func(e effect) bool {
		if e.version.There || e.Op == "seen" || e.Outcome == Failed || e.End < since || e.Begin > j.End {
			return false
		}
		if e.Op != Rename || e.Outcome != Done || j.Live || visited[e.to] || j.replaced(p, since, e.Begin) {
			return true
		}
		return j.Files[e.to].Version.There || j.released(e.to, e.Begin, visited)
	})
}

// replaced reports whether another file came to a name between two times.
func (j *judge) replaced(p string, after, before int64) bool {
	return slices.ContainsFunc(j.effects[p], func(e effect) bool {
		return (e.Op == Rename && e.to == p || e.Op == Txn) && e.Outcome != Failed && e.Begin > after && e.Begin < before
	})
}

// comesBy reports whether a version may have come to a name of the store since a check of it, by
// renames that were requested before and that the store had yet to follow. One after the other
// takes the version from where it was then to where it belongs. Once an observer has found that the
// store followed a rename, it brings nothing any more.
func (j *judge) comesBy(p string, v Version, look int64) bool {
	followed := int64(0)
	for _, e := range j.flushes {
		if e.Outcome == Done && e.End < j.Begin && e.Below == "" {
			followed = max(followed, e.Begin)
		}
	}
	for _, e := range j.cleans {
		followed = max(followed, e.Begin)
	}
	return j.broughtTo(p, v, look, followed, map[string]bool{})
}

// broughtTo is comesBy of renames that may not have been followed at a time.
func (j *judge) broughtTo(p string, v Version, look, followed int64, visited map[string]bool) bool {
	visited[p] = true
	return slices.ContainsFunc(j.effects[p], func(e effect) bool {
		if e.Op != Rename || e.to != p || e.Outcome == Failed || e.Begin > look || e.End < followed || visited[e.from] {
			return false
		}
		return j.stored[e.from].version == v || j.broughtTo(e.from, v, look, followed, visited)
	})
}

// story lists the last events of a name.
func (j *judge) story(p string, since int64) string {
	const most = 8
	told := []string{fmt.Sprintf("durable since %d", since)}
	effects := j.effects[p]
	for _, e := range effects[max(0, len(effects)-most):] {
		what := fmt.Sprintf("%d %s: %v", e.Begin, e.Op, e.version)
		if e.to != "" {
			what += fmt.Sprintf(" (%s to %s)", e.from, e.to)
		}
		if e.Outcome == Unknown {
			what += " (unknown)"
		}
		told = append(told, what)
		if e.from == p && e.Begin >= since && e.to != p {
			told = append(told, fmt.Sprintf("[%s: %s]", e.to, j.story(e.to, e.Begin)))
		}
	}
	return strings.Join(told, "; ")
}

func list(s set) []string {
	var all []string
	for v := range maps.Keys(s) {
		all = append(all, v.String())
	}
	slices.Sort(all)
	return all
}
