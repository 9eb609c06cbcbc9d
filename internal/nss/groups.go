package nss

import (
	"context"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// groupsWithin is how long the system may take to name a user's groups.
const groupsWithin = 20 * time.Second

// Groups returns the supplementary groups of a user, besides gid. A static binary reads
// /etc/group alone, so the system's own programs are run, which read LDAP and the rest of nss.
// A user without a name has no other groups than gid.
func Groups(ctx context.Context, uid, gid uint32) ([]uint32, error) {
	if uid == 0 {
		return nil, nil // no right of root's depends on one
	}
	ctx, cancel := context.WithTimeout(ctx, groupsWithin)
	defer cancel()
	name, err := nameOf(ctx, uid)
	if err != nil || name == "" {
		return nil, err
	}
	out, found, err := ask(ctx, "id", "-G", name)
	if err != nil {
		return nil, err
	}
	if !found {
		out = fromFiles(name)
	}
	return parseGroups(out, gid), nil
}

// nameOf returns a user's name, or "" if it has none.
func nameOf(ctx context.Context, uid uint32) (string, error) {
	id := strconv.FormatUint(uint64(uid), 10)
	out, found, err := ask(ctx, "getent", "passwd", id)
	if err != nil {
		return "", err
	}
	if name, _, ok := strings.Cut(out, ":"); found && ok {
		return name, nil
	}
	u, err := user.LookupId(id) // without getent, as with BusyBox and musl
	if err != nil {
		return "", nil
	}
	return u.Username, nil
}

// fromFiles returns a user's groups in /etc/group.
func fromFiles(name string) string {
	u, err := user.Lookup(name)
	if err != nil {
		return ""
	}
	ids, err := u.GroupIds()
	if err != nil {
		return ""
	}
	return strings.Join(ids, " ")
}

// parseGroups reads numbers of groups, without gid and without those that occur twice.
func parseGroups(out string, gid uint32) []uint32 {
	var groups []uint32
	for field := range strings.FieldsSeq(out) {
		n, err := strconv.ParseUint(field, 10, 32)
		if err == nil && uint32(n) != gid && !slices.Contains(groups, uint32(n)) {
			groups = append(groups, uint32(n))
		}
	}
	return groups
}

// GroupCache keeps users' groups for a minute. The zero value is ready for use. Its methods may be
// called concurrently.
type GroupCache struct {
	mu    sync.Mutex
	known map[member]cached
}

// member is a user in the group that it came with.
type member struct{ uid, gid uint32 }

type cached struct {
	groups []uint32
	at     time.Time
}

const (
	groupsKnown = time.Minute
	maxCached   = 4096 // users
)

// Get is Groups, as it was at most a minute ago.
func (c *GroupCache) Get(ctx context.Context, uid, gid uint32) ([]uint32, error) {
	u := member{uid, gid}
	c.mu.Lock()
	k, ok := c.known[u]
	c.mu.Unlock()
	if ok && time.Since(k.at) < groupsKnown {
		return k.groups, nil
	}
	groups, err := Groups(ctx, uid, gid)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCached {
		c.known = make(map[member]cached)
	}
	c.known[u] = cached{groups, time.Now()}
	return groups, nil
}
