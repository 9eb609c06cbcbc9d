package plan

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"forebay/internal/bb"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScripts runs testdata/*.txt. Run with -rewrite to record the results.
//
//	plan [free=N] [total=N] [per-buffer=N] [per-store=N] [per-user=N] [small=BYTES:PER-WORKER] [stuck=STORE:N] [holds=USER:N] [pressure] [at=DURATION]
//	item ID BUFFER SIZE dirty=AGO closed=AGO [retry=IN] [held] [urgent]
//	buffer NAME [draining] [paused] [burst] [age=DURATION] [flying=N] [store=NAME] [user=N]
//
// Each plan continues with the memory of the one before. "reset" clears it.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		fair := Fair{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "reset" {
				fair = Fair{}
				return ""
			}
			in := parse(t, d)
			in.Fair = fair
			picks, next, wake := Next(in)
			fair = next
			return render(picks, fair, wake, in.Now)
		})
	})
}

func parse(t *testing.T, d *datadriven.TestData) Input {
	in := Input{Buffers: map[string]Buffer{}, Now: epoch, Limits: Limits{Free: 100, DirtyAge: 5 * time.Minute, Idle: 2 * time.Second}}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "free":
			fmt.Sscan(arg.Vals[0], &in.Limits.Free)
		case "per-buffer":
			fmt.Sscan(arg.Vals[0], &in.Limits.PerBuffer)
		case "per-store":
			fmt.Sscan(arg.Vals[0], &in.Limits.PerStore)
		case "total":
			fmt.Sscan(arg.Vals[0], &in.Limits.Total)
		case "per-user":
			fmt.Sscan(arg.Vals[0], &in.Limits.PerUser)
		case "holds": // USER:N
			var user uint32
			count := 0
			fmt.Sscanf(arg.Vals[0], "%d:%d", &user, &count)
			in.Holds = map[uint32]int{user: count}
		case "small": // BYTES:PER-WORKER
			size, n, _ := strings.Cut(arg.Vals[0], ":")
			fmt.Sscan(size, &in.Limits.Small)
			fmt.Sscan(n, &in.Limits.PerWorker)
		case "stuck": // STORE:N
			store, n, _ := strings.Cut(arg.Vals[0], ":")
			count := 0
			fmt.Sscan(n, &count)
			in.Stuck = map[string]int{store: count}
		case "pressure":
			in.Pressure = true
		default:
			t.Fatalf("%s: unknown argument %s", d.Pos, arg.Key)
		}
	}
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		switch words[0] {
		case "item":
			in.Items = append(in.Items, parseItem(t, words[1:]))
		case "buffer":
			in.Buffers[words[1]] = parseBuffer(t, words[2:])
		default:
			t.Fatalf("%s: %s", d.Pos, line)
		}
	}
	return in
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parseItem(t *testing.T, words []string) Item {
	it := Item{Buffer: words[1], DirtySince: epoch, ClosedAt: epoch}
	fmt.Sscan(words[0], &it.ID)
	fmt.Sscan(words[2], &it.Size)
	for _, w := range words[3:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "dirty":
			it.DirtySince = epoch.Add(-duration(t, value))
		case "closed":
			it.ClosedAt = epoch.Add(-duration(t, value))
		case "retry":
			it.NotBefore = epoch.Add(duration(t, value))
		case "held":
			it.Held = true
		case "urgent":
			it.Urgent = true
		default:
			t.Fatal(w)
		}
	}
	return it
}

func parseBuffer(t *testing.T, words []string) (b Buffer) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "draining":
			b.Draining = true
		case "burst":
			b.Burst = true
		case "paused":
			b.Paused = true
		case "age":
			b.DirtyAge = duration(t, value)
		case "flying":
			fmt.Sscan(value, &b.InFlight)
		case "store":
			b.Store = value
		case "small":
			fmt.Sscan(value, &b.Small)
		case "user":
			fmt.Sscan(value, &b.User)
		case "due":
			b.Due = epoch.Add(duration(t, value))
		case "dirty":
			fmt.Sscan(value, &b.Dirty)
		case "pace":
			fmt.Sscan(value, &b.Pace)
		default:
			t.Fatal(w)
		}
	}
	return b
}

func render(picks []Item, fair Fair, wake, now time.Time) string {
	var b strings.Builder
	for _, p := range picks {
		fmt.Fprintf(&b, "flush %d of %s\n", p.ID, p.Buffer)
	}
	for _, name := range slices.Sorted(maps.Keys(fair.Buffers)) {
		fmt.Fprintf(&b, "%s has had %d\n", name, fair.Buffers[name])
	}
	for _, user := range slices.Sorted(maps.Keys(fair.Users)) {
		if user != 0 {
			fmt.Fprintf(&b, "user %d has had %d\n", user, fair.Users[user])
		}
	}
	if wake.IsZero() {
		b.WriteString("wait for a change\n")
	} else {
		fmt.Fprintf(&b, "look again in %v\n", wake.Sub(now))
	}
	return b.String()
}

// random makes an input that anything may be true of.
func random(r *rand.Rand) Input {
	in := Input{
		Buffers: map[string]Buffer{}, Now: epoch, Pressure: r.IntN(2) == 0, Fair: Fair{Buffers: map[string]int64{}, Users: map[uint32]int64{}},
		Limits: Limits{Free: r.IntN(6), PerBuffer: r.IntN(4), DirtyAge: time.Minute, Idle: time.Second},
	}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		if r.IntN(3) == 0 {
			b := Buffer{Draining: r.IntN(2) == 0, Paused: r.IntN(5) == 0, DirtyAge: time.Duration(r.IntN(3)) * 30 * time.Second, InFlight: r.IntN(3)}
			if r.IntN(2) == 0 {
				b.Due, b.Dirty, b.Pace = epoch.Add(time.Duration(r.IntN(200)-20)*time.Second), r.Int64N(1<<20), float64(r.IntN(1<<14))
			}
			in.Buffers[name] = b
		}
		if r.IntN(2) == 0 {
			in.Fair.Buffers[name] = r.Int64N(1 << 20)
		}
	}
	for i := range r.IntN(12) {
		it := Item{
			ID: uint64(i), Buffer: names[r.IntN(3)], Size: r.Int64N(1 << 20), Held: r.IntN(6) == 0, Urgent: r.IntN(6) == 0,
			DirtySince: epoch.Add(-time.Duration(r.IntN(100)) * time.Second),
		}
		it.ClosedAt = it.DirtySince.Add(time.Duration(r.Int64N(int64(epoch.Sub(it.DirtySince) + 1))))
		if r.IntN(4) == 0 {
			it.NotBefore = epoch.Add(time.Duration(r.IntN(20)-10) * time.Second)
		}
		in.Items = append(in.Items, it)
	}
	return in
}

// oracle is Next, plain and slow: sort all eligible items by (user is at its share, class, its user's count,
// user, its buffer's count, buffer, age), take the first, and begin anew.
func oracle(in Input) (ids []uint64) {
	had, flying, holds := in.Fair.admit(in), map[string]int{}, map[uint32]int{}
	for name, b := range in.Buffers {
		flying[name] = b.InFlight
	}
	active := map[uint32]bool{}
	for user, n := range in.Holds {
		holds[user] = n
		active[user] = n > 0 || active[user]
	}
	for _, it := range in.Items {
		if _, ok := mayGo(in, it); ok {
			active[in.Buffers[it.Buffer].User] = true
		}
	}
	maps.DeleteFunc(active, func(_ uint32, is bool) bool { return !is })
	left := slices.Clone(in.Items)
	for len(ids) < in.Limits.Free {
		var best *Item
		var bestKey string
		for i := range left {
			it := &left[i]
			class, ok := mayGo(in, *it)
			user := in.Buffers[it.Buffer].User
			if !ok || in.Limits.PerBuffer > 0 && flying[it.Buffer] >= in.Limits.PerBuffer || storeIsFull(in, flying, it.Buffer) ||
				in.Limits.PerUser > 0 && holds[user] >= in.Limits.PerUser {
				continue
			}
			atShare := in.Limits.Total > 0 && holds[user] >= max(1, in.Limits.Total/len(active))
			key := fmt.Sprintf("%v %d %020d %d %020d %s %020d %020d", atShare, class, had.Users[user], user, had.Buffers[it.Buffer], it.Buffer, it.DirtySince.UnixNano(), it.ID)
			if best == nil || key < bestKey {
				best, bestKey = it, key
			}
		}
		if best == nil {
			return ids
		}
		picked := *best
		ids = append(ids, picked.ID)
		b := in.Buffers[picked.Buffer]
		had.Buffers[picked.Buffer] += max(picked.Size, requestCost) / shares(b, in.Now)
		had.Users[b.User] += max(picked.Size, requestCost) / shares(b, in.Now)
		flying[picked.Buffer]++
		holds[b.User]++
		left = slices.DeleteFunc(left, func(it Item) bool { return it.ID == picked.ID })
	}
	return ids
}

// storeIsFull adds up the attempts to the store of a buffer.
func storeIsFull(in Input, flying map[string]int, buffer string) bool {
	store := in.Buffers[buffer].Store
	n := flying[buffer]
	if store != "" {
		n = in.Stuck[store]
		for name, b := range in.Buffers {
			if b.Store == store {
				n += flying[name]
			}
		}
	}
	return in.Limits.PerStore > 0 && n >= in.Limits.PerStore
}

// shares is urge, found by trying: the fewest shares with which the buffer is clean in four fifths
// of the time left.
func shares(b Buffer, now time.Time) int64 {
	left := b.Due.Sub(now).Seconds()
	switch {
	case b.Due.IsZero() || b.Dirty == 0:
		return 1
	case b.Pace == 0 && left > 120:
		return 1
	case b.Pace == 0:
		return 2
	}
	for n := int64(1); n < 8; n++ {
		if float64(b.Dirty)/b.Pace/0.8 <= float64(n)*left {
			return n
		}
	}
	return 8
}

func mayGo(in Input, it Item) (int, bool) {
	b := in.Buffers[it.Buffer]
	age := in.Limits.DirtyAge
	if b.DirtyAge != 0 {
		age = b.DirtyAge
	}
	if it.Held || b.Paused || in.Now.Before(it.NotBefore) {
		return 0, false
	}
	if in.Now.Sub(it.DirtySince) >= age || shares(b, in.Now) > 1 {
		return 1, true
	}
	if b.Draining || it.Urgent {
		return 2, true
	}
	if in.Pressure {
		return 3, true
	}
	return 4, in.Now.Sub(it.ClosedAt) >= in.Limits.Idle
}

// withStores has some buffers flush to the same stores, of which each may have so much in flight.
func withStores(in Input, r *rand.Rand) Input {
	in.Limits.PerStore = r.IntN(5)
	in.Stuck = map[string]int{"x": r.IntN(3)}
	for _, name := range []string{"a", "b", "c"} {
		b := in.Buffers[name]
		b.Store = []string{"", "x", "y"}[r.IntN(3)]
		in.Buffers[name] = b
	}
	return in
}

// withUsers assigns the buffers to users, who hold workers already.
func withUsers(in Input, r *rand.Rand) Input {
	in.Limits.Total, in.Limits.PerUser = r.IntN(7), r.IntN(5)
	in.Holds = map[uint32]int{}
	for _, name := range []string{"a", "b", "c"} {
		b := in.Buffers[name]
		b.User = uint32(r.IntN(3))
		in.Buffers[name] = b
		if r.IntN(2) == 0 {
			in.Holds[b.User], in.Fair.Users[b.User] = r.IntN(4), r.Int64N(1<<20)
		}
	}
	return in
}

func TestAgainstOracle(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := withUsers(withStores(random(r), r), r)
		before, users := maps.Clone(in.Fair.Buffers), maps.Clone(in.Fair.Users)
		picks, _, wake := Next(in)
		var ids []uint64
		for _, p := range picks {
			ids = append(ids, p.ID)
		}
		if want := oracle(in); !slices.Equal(ids, want) {
			t.Fatalf("seed %d: %v, want %v\n%+v", seed, ids, want, in)
		}
		if !maps.Equal(before, in.Fair.Buffers) || !maps.Equal(users, in.Fair.Users) {
			t.Fatalf("seed %d: the input was changed", seed)
		}
		if !wake.IsZero() && !wake.After(in.Now) {
			t.Fatalf("seed %d: look again at %v, which is past", seed, wake)
		}
	}
}

// TestWakeIsInTime moves the clock to the time that Next returned, and finds something to do then, and
// not before.
func TestWakeIsInTime(t *testing.T) {
	for seed := range uint64(5_000) {
		in := random(rand.New(rand.NewPCG(seed, 2)))
		in.Limits.Free, in.Limits.PerBuffer, in.Limits.PerStore = 1000, 0, 0
		picks, _, wake := Next(in)
		if wake.IsZero() {
			in.Now = in.Now.Add(1000 * time.Hour)
			if later, _, _ := Next(in); len(later) != len(picks) {
				t.Fatalf("seed %d: %d could go later, and nobody would look", seed, len(later)-len(picks))
			}
			continue
		}
		in.Now = wake.Add(-1)
		if early, _, _ := Next(in); len(early) != len(picks) {
			t.Fatalf("seed %d: something could go before it is looked for", seed)
		}
		in.Now = wake
		if then, _, next := Next(in); len(then) <= len(picks) && !next.After(wake) {
			t.Fatalf("seed %d: nothing can go when it is looked for", seed)
		}
	}
}

// TestFairness keeps three buffers busy, one with large files, one with small ones, one with empty
// ones. At no time has one had much more than another, and all of each file's elders in its buffer
// went before it.
func TestFairness(t *testing.T) {
	const largest = 1 << 20
	r := rand.New(rand.NewPCG(3, 3))
	sizes := map[string]func() int64{
		"large": func() int64 { return largest - r.Int64N(1000) }, "small": func() int64 { return r.Int64N(4096) + requestCost }, "empty": func() int64 { return 0 },
	}
	in := Input{Now: epoch, Limits: Limits{Free: 3, DirtyAge: time.Minute}, Fair: Fair{}}
	had, last, id := map[string]int64{}, map[string]uint64{}, uint64(0)
	for range 5000 {
		for name, size := range sizes {
			for countOf(in.Items, name) < in.Limits.Free {
				id++
				in.Items = append(in.Items, Item{ID: id, Buffer: name, Size: size(), DirtySince: in.Now, ClosedAt: in.Now})
			}
		}
		picks, fair, _ := Next(in)
		if len(picks) != in.Limits.Free {
			t.Fatalf("%d workers have nothing to do", in.Limits.Free-len(picks))
		}
		for _, p := range picks {
			had[p.Buffer] += max(p.Size, requestCost)
			if p.ID < last[p.Buffer] {
				t.Fatalf("%s: %d went after %d", p.Buffer, p.ID, last[p.Buffer])
			}
			last[p.Buffer] = p.ID
			in.Items = slices.DeleteFunc(in.Items, func(it Item) bool { return it.ID == p.ID })
		}
		if worst := slices.Max(slices.Collect(maps.Values(had))) - min(had["large"], had["small"], had["empty"]); worst > largest {
			t.Fatalf("one buffer has had %d bytes more than another", worst)
		}
		in.Fair = fair
	}
}

func countOf(items []Item, name string) (n int) {
	for _, it := range items {
		if it.Buffer == name {
			n++
		}
	}
	return n
}

// TestNobodySavesUp has a buffer come back after the other has had much.
func TestNobodySavesUp(t *testing.T) {
	in := Input{Now: epoch, Limits: Limits{Free: 1}, Fair: Fair{Buffers: map[string]int64{"a": 1 << 40}}}
	for i := range 10 {
		in.Items = append(in.Items, Item{ID: uint64(i), Buffer: "a", Size: 1 << 20}, Item{ID: uint64(i), Buffer: "b", Size: 1 << 20})
	}
	count := map[string]int{}
	for range 10 {
		picks, fair, _ := Next(in)
		in.Fair = fair
		count[picks[0].Buffer]++
	}
	if count["a"] != 5 || count["b"] != 5 {
		t.Fatalf("picked %v", count)
	}
}

func TestCleanBy(t *testing.T) {
	for _, x := range []struct {
		dirty int64
		pace  float64
		left  time.Duration
		by    time.Duration
		late  bool
	}{
		{0, 0, -time.Hour, 0, false},
		{100, 10, 11 * time.Second, 10 * time.Second, false},
		{100, 10, 10 * time.Second, 10 * time.Second, false},
		{100, 10, 9 * time.Second, 10 * time.Second, true},
		{1, 0, time.Hour, 365 * 24 * time.Hour, true},
		{1 << 62, 0.001, time.Hour, 365 * 24 * time.Hour, true},
	} {
		by, late := CleanBy(x.dirty, x.pace, epoch, epoch.Add(x.left))
		if by.Sub(epoch) != x.by || late != x.late {
			t.Errorf("%+v: by %v, late %v", x, by.Sub(epoch), late)
		}
	}
}

func TestKept(t *testing.T) {
	patterns := append(bb.DefaultNoFlush(), "part-[0-9]", "?hidden/")
	for file, want := range map[string]string{
		"out/_temporary/0/part-00": "_temporary/", "_temporary/x": "_temporary/", "_temporary": "", "out/x_temporary/a": "",
		".spark-staging-1234/a": ".spark-staging*/", "a/.spark-staging/b": ".spark-staging*/", ".spark-staging": "",
		"a.tmp": "*.tmp", "d/.tmp": "*.tmp", "d.tmp/a": "", "a.tmp.gz": "", "a": "", "d/part-7": "part-[0-9]", "part-77": "",
		".hidden/a": "?hidden/", "hidden/a": "", "": "", "a/_temporary/b.tmp": "_temporary/",
	} {
		if got, kept := Excluded(patterns, file); got != want || kept != (want != "") {
			t.Errorf("%q is kept by %q, want %q", file, got, want)
		}
	}
	for _, bad := range []string{"", "/", "a/b", "a/b/", "[", "[a/", "x\x00", "\\", strings.Repeat("x", 300)} {
		if err := bb.CheckPattern(bad); !errors.Is(err, bb.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, kept := Excluded([]string{bad}, "a/b/x"); kept {
			t.Errorf("%q keeps a file back", bad)
		}
	}
	for _, good := range patterns {
		if err := bb.CheckPattern(good); err != nil {
			t.Error(err)
		}
	}
}

// TestNames: paths overlap if one is the other, or lies in it.
func TestNames(t *testing.T) {
	t.Parallel()
	paths := []string{"", "a", "a/b", "a/b/c", "ab", "a/bc", "b", "b/a"}
	in := func(dir, p string) bool { return dir == "" || p == dir || strings.HasPrefix(p, dir+"/") }
	for _, p := range paths {
		var n Names
		if n.Overlap(p) {
			t.Errorf("%q overlaps with nothing", p)
		}
		n.Add("x/y", p)
		for _, q := range paths {
			want := in(p, q) || in(q, p) || in(q, "x/y")
			if got := n.Overlap(q); got != want {
				t.Errorf("%q and %q: %v, want %v", p, q, got, want)
			}
		}
	}
}
