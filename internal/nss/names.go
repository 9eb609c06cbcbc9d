package nss

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"forebay/internal/bb"
)

// database is one of getent(1)'s, with its file.
type database struct{ name, file, what string }

var (
	passwd = database{"passwd", "/etc/passwd", "user"}
	group  = database{"group", "/etc/group", "group"}
)

// query is a name in a database.
type query struct {
	in   database
	name string
}

// Names returns the numbers of users and groups, as they were a minute ago at most. The zero value
// is ready for use. Its methods may be called concurrently.
type Names struct {
	Log *slog.Logger // gets a line for each name without a user, or without an answer; nil: none

	within time.Duration // that the system may take for a name; 0: nameWithin

	mu     sync.Mutex
	known  map[query]answer
	asking singleflight.Group
}

// User returns the uid of a user, given by name or by number. The error's kind is NotFound if there
// is no such user, and Unavailable if the system does not answer.
func (n *Names) User(ctx context.Context, name string) (uint32, error) {
	return n.number(ctx, query{passwd, name})
}

// Group is User for a group.
func (n *Names) Group(ctx context.Context, name string) (uint32, error) {
	return n.number(ctx, query{group, name})
}

func (n *Names) number(ctx context.Context, q query) (uint32, error) {
	// A number is never a name. Otherwise a user whose name is another's number would have the other's rights.
	if id, err := strconv.ParseUint(q.name, 10, 32); err == nil {
		return uint32(id), nil
	}
	n.mu.Lock()
	a, ok := n.known[q]
	n.mu.Unlock()
	if ok && a.fresh(time.Now()) {
		return a.id, a.err
	}
	if ctx.Err() != nil {
		return 0, silent("the system", []string{q.in.name, q.name})
	}
	// One process for all waiting callers. None of them can end it for the others.
	v, _, _ := n.asking.Do(q.in.name+":"+q.name, func() (any, error) { return n.renew(q, a), nil })
	a = v.(answer)
	return a.id, a.err
}

// maxNames bounds the cache. An administrator writes fewer.
const maxNames = 4096

// renew sends a request, and keeps the answer.
func (n *Names) renew(q query, before answer) answer {
	id, err := find(q, cmp.Or(n.within, nameWithin))
	a := before.then(id, err, time.Now())
	n.mu.Lock()
	if n.known == nil || len(n.known) >= maxNames {
		n.known = make(map[query]answer)
	}
	n.known[q] = a
	n.mu.Unlock()
	if err != nil && n.Log != nil && bb.KindOf(err) != bb.KindOf(before.said) {
		n.Log.Warn("a name in the configuration cannot be resolved", q.in.what, q.name, "err", err)
	}
	return a
}

// answer is the cached state of a name.
type answer struct {
	id    uint32
	err   error     // of User and Group
	said  error     // of the last time that the system was queried
	asked time.Time // when that was
	found time.Time // when id was right last; zero: never
}

const (
	foundFor   = time.Minute      // an answer counts
	unknownFor = 10 * time.Second // and that there is none; a database that is away answers the same
	silentFor  = time.Hour        // the last answer counts while there is no other
)

// fresh reports whether the system need not be queried again.
func (a answer) fresh(now time.Time) bool {
	keep := foundFor
	if a.said != nil {
		keep = unknownFor
	}
	return now.Sub(a.asked) < keep
}

// then returns the state of a name after one more answer. A user that is removed counts as such at
// once. A system that does not answer changes nothing for a while.
func (a answer) then(id uint32, err error, now time.Time) answer {
	switch {
	case err == nil:
		return answer{id: id, asked: now, found: now}
	case bb.KindOf(err) == bb.Unavailable && !a.found.IsZero() && now.Sub(a.found) < silentFor:
		return answer{id: a.id, said: err, asked: now, found: a.found}
	}
	return answer{err: err, said: err, asked: now}
}

// nameWithin is how long the system may take for one name.
const nameWithin = 5 * time.Second

// find searches a name in the file, which needs no process, and then queries the system.
func find(q query, within time.Duration) (uint32, error) {
	text, err := os.ReadFile(q.in.file)
	if err == nil {
		if id, ok := numberIn(string(text), q.name); ok {
			return id, nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if askable(q.name) {
		out, found, err := ask(ctx, "getent", q.in.name, q.name)
		if err != nil {
			return 0, err
		}
		// The database may write the name in another way, such as with its domain.
		line, _, _ := strings.Cut(out, "\n")
		if id, ok := numberOf(line); found && ok {
			return id, nil
		}
	}
	return 0, bb.E(bb.NotFound, "look up", q.name, "no "+q.in.what+" has this name").
		WithRemedy("write it as getent " + q.in.name + " does, or as a number")
}

// askable reports whether a name is one to getent, and neither an option nor a line.
func askable(name string) bool {
	return name != "" && !strings.HasPrefix(name, "-") && !strings.ContainsAny(name, ":\x00\n")
}

// numberIn returns the number of a name in the text of passwd(5) or group(5).
func numberIn(text, name string) (uint32, bool) {
	for line := range strings.Lines(text) {
		if of, _, ok := strings.Cut(line, ":"); ok && of == name {
			return numberOf(line)
		}
	}
	return 0, false
}

// numberOf returns the number in a line of passwd(5) or group(5), its third field.
func numberOf(line string) (uint32, bool) {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 4)
	if len(fields) < 4 {
		return 0, false
	}
	id, err := strconv.ParseUint(fields[2], 10, 32)
	return uint32(id), err == nil
}
