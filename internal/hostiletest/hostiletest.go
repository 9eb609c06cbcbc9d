// Package hostiletest runs two users of one daemon against each other. One attacks it in every way of known
// attacks, while the other writes, drains and compares. Both are processes of the test's own binary. It depends
// on the wire, the client and the layout of regions of releases that relied on them, and must never depend on
// the daemon's packages.
package hostiletest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/clustercert"
)

// env holds the task of a process that a test has started.
const env = "FOREBAY_TEST_HOSTILE"

// Neither user is known to the system, and neither is in a group with the other.
const (
	attackerUID = 65533
	victimUID   = 65532
)

// Options describe a run.
type Options struct {
	Socket   string   // of the daemon, which is root's; all users can reach it
	TCP      string   // where it takes sessions of users with a token; "": nowhere
	Regions  string   // the folder of its regions
	Seed     uint64   // order and content of the attacks
	Rounds   int      // attacks of each kind
	Only     []string // kinds of attacks; none: all
	NoVictim bool     // the attacker is alone

	// Patience bounds a round of the victim's and a step of any user. Only the daemon's failure makes one as
	// long. 0: five minutes, for machines on which dozens of programs share each processor.
	Patience time.Duration

	// TLS has the clients' files where TCP is with TLS: the authority's certificate, and a client's
	// certificate and key, which the attacker has. Zero: there is no TLS.
	TLS clustercert.Files

	// Restart restarts the daemon. It is killed, or stopped in order. It is called on the test's
	// goroutine. nil: attacks that need a restart are left out.
	Restart func(kill bool)

	// Alive fails the test where the daemon has ended by itself.
	Alive func()

	// Stuck fails the test, and shows the daemon's goroutines. The victim has made no round for two thirds
	// of Patience, longer than any takes.
	Stuck func()
}

// task is the work of a process.
type task struct {
	Victim              bool
	Socket, TCP         string
	TLS                 clustercert.Files
	Regions             string
	Dir                 string // the user's own
	Roots, Scratch      string
	Swaps               string // see mountSwaps
	Seed                uint64
	Rounds              int // the victim continues until its standard input ends
	Patience            time.Duration
	Only                []string
	Restarts, HasVictim bool
}

// Result is the result of a user's work.
type Result struct {
	Files   int               // the victim's, each compared in the buffer and on the store
	Rounds  int               // the victim's
	Tokens  int               // the victim's sessions over TCP
	Attacks map[string]int    // the attacker's, by kind
	Void    map[string]int    // those that found nothing to attack, since the daemon had no memory or session for the attacker
	Why     map[string]string // the last event of these
	Took    map[string]time.Duration
	Order   []string // of the attacks
	Failed  string   // the victim's failure; of an attack that it succeeded, or could not be made
}

// event is a line that a user's process writes.
type event struct {
	Round   bool    `json:",omitempty"` // the victim has ended a round
	Await   bool    `json:",omitempty"` // the attacker waits for a round of the victim's that has yet to begin
	Probe   bool    `json:",omitempty"` // the attacker requests a check whether root gets in
	Restart bool    `json:",omitempty"` // the attacker requests a restart
	Kill    bool    `json:",omitempty"` // by SIGKILL
	Result  *Result `json:",omitempty"` // the process ends
}

// Main does the work that a test has started this process for, and ends it. Otherwise it returns.
// TestMain calls it first.
func Main() {
	text := os.Getenv(env)
	if text == "" {
		return
	}
	var (
		t task
		r Result
	)
	err := json.Unmarshal([]byte(text), &t)
	if err == nil && t.Victim {
		r, err = work(&t)
	} else if err == nil {
		r, err = attack(&t)
	}
	if err != nil {
		r.Failed = err.Error()
	}
	if tell(event{Result: &r}) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// tell writes an event.
func tell(e event) error { return json.NewEncoder(os.Stdout).Encode(e) }

// Run makes so many attacks of each kind, in an order of the seed's, while the victim works. If an
// attack has changed or read data of others, it fails the test.
func Run(tb testing.TB, o Options) (attacker, victim Result) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	roots, scratch := makeRoots(tb, dir), makeScratch(tb, dir)
	before := snapshot(tb, roots, scratch)
	o.Patience = cmp.Or(o.Patience, 5*time.Minute)
	r := &run{tb: tb, o: &o, since: time.Now()}
	t := task{
		Socket: o.Socket, TCP: o.TCP, TLS: o.TLS, Regions: o.Regions, Roots: roots, Scratch: scratch, Swaps: mountSwaps(tb, dir, roots),
		Seed: o.Seed, Rounds: o.Rounds, Only: o.Only, Restarts: o.Restart != nil, HasVictim: !o.NoVictim,
		Patience: o.Patience,
	}
	if !o.NoVictim {
		v := t
		v.Victim = true
		r.victim = start(tb, dir, victimUID, v)
	}
	r.attacker = start(tb, dir, attackerUID, t)
	attacker = r.attack()
	if r.victim != nil {
		victim = r.endVictim()
	}
	compare(tb, before, snapshot(tb, roots, scratch))
	return attacker, victim
}

// run is the test's side of both users.
type run struct {
	tb               testing.TB
	o                *Options
	attacker, victim *user
	rounds           int // the victim's
	probes           int
	since            time.Time
	result           *Result
}

// attack serves the attacker until its end.
func (r *run) attack() Result {
	r.tb.Helper()
	for {
		e := r.next(r.attacker)
		switch {
		case e.Result != nil:
			return *e.Result
		case e.Restart:
			r.o.Alive()
			r.o.Restart(e.Kill)
		case e.Await && r.victim != nil:
			r.awaitRounds(2) // the first one of them may have begun before
		case e.Probe:
			r.probe()
		}
		if _, err := r.attacker.in.Write([]byte{'\n'}); err != nil {
			r.tb.Fatalf("the attacker's program does not go on: %v\n%s", err, r.attacker.failed.Bytes())
		}
	}
}

// probe begins a session and writes a file as root, each at the first attempt, since root has a
// reserve of memory and is never refused.
func (r *run) probe() {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.o.Patience)
	defer cancel()
	failed := func(what string, err error) bool {
		r.tb.Helper()
		if err != nil {
			r.tb.Errorf("root cannot %s: %v", what, err)
		}
		return err != nil
	}
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + r.o.Socket, RetryFor: -1})
	if failed("begin a session", err) {
		return
	}
	defer c.Close()
	r.probes++
	name, content := fmt.Sprint("probe-", r.probes), bytes.Repeat([]byte(rootsWords), 10_000)
	_, err = admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: name})
	if failed("make a buffer", err) {
		return
	}
	if b := c.Buffer(name); !failed("write", b.WriteFile(ctx, "f", content, 0o600)) {
		if got, err := b.ReadFile(ctx, "f"); !failed("read", err) && !bytes.Equal(got, content) {
			r.tb.Errorf("root reads %d bytes that are not those that were written", len(got))
		}
	}
	failed("remove a buffer", admin.DiscardBuffer(context.Background(), c, name))
}

// awaitRounds waits until the victim has ended so many rounds more.
func (r *run) awaitRounds(n int) {
	r.tb.Helper()
	r.heard()
	for end := r.rounds + n; r.rounds < end && r.result == nil; {
		r.count(r.next(r.victim))
	}
}

// heard counts the events of the victim that have arrived.
func (r *run) heard() {
	for r.victim != nil && r.result == nil && len(r.victim.events) > 0 {
		r.count(<-r.victim.events)
	}
}

func (r *run) count(e event) {
	if e.Round {
		r.rounds++
		r.since = time.Now()
	}
	if e.Result != nil {
		r.result = e.Result
	}
}

// endVictim ends the victim, and returns its result.
func (r *run) endVictim() Result {
	r.tb.Helper()
	r.victim.in.Close()
	for r.heard(); r.result == nil; {
		r.count(r.next(r.victim))
	}
	return *r.result
}

// next returns the next event of a user's process.
func (r *run) next(u *user) event {
	r.tb.Helper()
	for {
		select {
		case e := <-u.events:
			return e
		case <-time.After(time.Second):
		}
		if u != r.victim {
			r.heard()
		}
		// This comes before the victim's own patience ends, since the daemon's goroutines show its
		// wait only until then.
		if r.victim != nil && r.result == nil && time.Since(r.since) > r.o.Patience*2/3 {
			r.o.Alive()
			r.o.Stuck()
		}
	}
}

// MaxOpenFiles and MaxRequestMemory are the limits that the daemon has to have for open files, and for bytes
// of requests that are not whole.
const (
	MaxOpenFiles     = 4000
	MaxRequestMemory = 16 << 20
)

// Words of files that the attacker must neither read nor change.
const (
	rootsWords   = "ROOT'S OWN WORDS"
	victimsWords = "THE VICTIM'S WORDS"
)

// place makes directories (those with a slash at the end) and files below dir, in this order.
func place(tb testing.TB, dir string, entries []entry) string {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.name)
		if e.text == "" {
			must(os.Mkdir(path, 0o700))
		} else {
			must(os.WriteFile(path, []byte(e.text), 0o600))
		}
		must(os.Chown(path, e.uid, e.uid))
		must(os.Chmod(path, e.mode)) // despite the umask
	}
	return filepath.Join(dir, entries[0].name)
}

// entry is a directory, or a file with a text.
type entry struct {
	name string
	uid  int
	mode os.FileMode
	text string
}

// makeRoots makes a directory that all users may enter and only root may write to.
func makeRoots(tb testing.TB, dir string) string {
	tb.Helper()
	return place(tb, dir, []entry{
		{"roots", 0, 0o755, ""},
		{"roots/existing", 0, 0o600, rootsWords},
		{"roots/closed", 0, 0o700, ""},
		{"roots/closed/there", 0, 0o644, rootsWords},
	})
}

// makeScratch makes a directory that all may write to, with one of the victim's that no other user
// may enter and one that all users may read.
func makeScratch(tb testing.TB, dir string) string {
	tb.Helper()
	return place(tb, dir, []entry{
		{"scratch", 0, 0o777 | os.ModeSticky, ""},
		{"scratch/private", victimUID, 0o700, ""},
		{"scratch/private/data", victimUID, 0o600, victimsWords},
		{"scratch/open", victimUID, 0o755, ""},
		{"scratch/open/data", victimUID, 0o600, victimsWords},
	})
}

// snapshot describes all that lies in directories and is not the attacker's, by path.
func snapshot(tb testing.TB, dirs ...string) map[string]string {
	tb.Helper()
	found := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil || uidOf(info) == attackerUID && filepath.Dir(path) != filepath.Join(dir, "closed") {
				return err
			}
			var text []byte
			if d.Type().IsRegular() {
				text, err = os.ReadFile(path)
			}
			found[path] = fmt.Sprintf("%v of %d: %q", info.Mode(), uidOf(info), text)
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return found
}

// compare fails the test where something is not as it was.
func compare(tb testing.TB, before, after map[string]string) {
	tb.Helper()
	for path, was := range before {
		if after[path] != was {
			tb.Errorf("%s is %q, was %q", path, after[path], was)
		}
	}
	for path, is := range after {
		if _, ok := before[path]; !ok {
			tb.Errorf("%s was put there: %s", path, is)
		}
	}
}
