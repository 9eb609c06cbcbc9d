package backings

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/storerules"
	"forebay/flusher/backing/detach"
	"forebay/flusher/backing/s3"
	"forebay/internal/bb"
	"forebay/internal/userfile"
)

// The URL of an object store is its user's. It names an endpoint, which receives signed requests, a
// profile of credentials, and files. Package storerules decides which parts of it a user may make
// the daemon use. Root and the daemon's own user may name anything, since they can do it without
// the daemon.

// ownerCred are the rights of a buffer's owner, with which its store is used.
func ownerCred(spec *bb.Buffer) access.Caller { return access.Of(spec.UID, spec.GID) }

// site is the configuration of object stores.
func (s *Pool) site() storerules.Site {
	return storerules.Site{Endpoint: cmp.Or(s.o.Open.S3.Endpoint, s3.DefaultEndpoint), CA: s.o.Open.S3.CAFile}
}

// denied is the error for a kind of stores that has no rules for users.
func denied(where bb.Backing) error {
	return access.Denied("backing", where.Scheme+":", "use stores of this kind, which are for root and the daemon's user").
		WithRemedy("choose a store of another kind")
}

// mayUse reports whether a user may have the daemon use a store.
func (s *Pool) mayUse(c access.Caller, where bb.Backing) error {
	_, err := s.use(c, where)
	return err
}

// use is mayUse that returns the use that the URL of an object store requests.
func (s *Pool) use(c access.Caller, where bb.Backing) (use storerules.Use, err error) {
	switch access := where.Access(); {
	case access == bb.AccessAsUser || c.System:
		return use, nil
	case access != bb.AccessByRules:
		return use, denied(where)
	}
	site := s.site()
	if use, err = storerules.UseOf(where, site); err != nil {
		return use, err
	}
	if access.IsOwner(c.UID) && (use.Own || use.CA != "") {
		return use, bb.E(bb.Permission, "backing", cmp.Or(use.CA, "credentials"), "credentials and certificates in files are not read for remote clients of this daemon's own user")
	}
	rules := s.o.Rules
	if rules == nil {
		rules = storerules.Default()
	}
	ctx, cancel := context.WithTimeout(s.ctx, namesWithin)
	defer cancel()
	return use, storerules.Check(rules, site, use, func(name string) (bool, error) { return s.isUser(ctx, c, name) })
}

// guard checks that a user may use the store behind a URL, and has the files that the URL
// names read as that user. Files that a rule names instead are readable by the administrator's permission.
func (s *Pool) guard(c access.Caller, url string, o *s3.Options) error {
	where, err := bb.ParseBacking(url)
	if err != nil {
		return err
	}
	use, err := s.use(c, where)
	if err != nil || !use.Own {
		return err
	}
	o.ReadFile = func(name string) ([]byte, error) {
		if name == s.o.Open.S3.CAFile {
			return userfile.Read(name)
		}
		return s.readAs(c, name)
	}
	return nil
}

// readAs reads a file with a user's rights. A file system that does not answer is left behind.
// Their number is bounded for each user.
func (s *Pool) readAs(c access.Caller, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(s.ctx, Patience, NotAnswered(name))
	defer cancel()
	text, err := detach.Do(ctx, s.readsOf(c.UID), "read", name, func(context.Context) ([]byte, error) {
		return userfile.ReadAs(name, userfile.User{UID: c.UID, Groups: c.GIDs})
	}, func([]byte) {})
	return text, Answered(ctx, err)
}

// readsOf counts the reads of a user's files that hang.
func (s *Pool) readsOf(uid uint32) *detach.Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.reads[uid]
	if c == nil {
		c = &detach.Calls{}
		s.mu.reads[uid] = c
	}
	return c
}

// namesWithin bounds the lookups of the names of all rules.
const namesWithin = 10 * time.Second

// isUser reports whether a rule's name means a user: a user's name or number, or @ and a group's. An
// unknown name means no user.
func (s *Pool) isUser(ctx context.Context, c access.Caller, name string) (bool, error) {
	if name == "*" {
		return true, nil
	}
	gname, isGroup := strings.CutPrefix(name, "@")
	var id uint32
	var err error
	if isGroup {
		id, err = s.o.Names.Group(ctx, gname)
	} else {
		id, err = s.o.Names.User(ctx, name)
	}
	switch {
	case bb.KindOf(err) == bb.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case isGroup:
		return slices.Contains(c.GIDs, id), nil
	}
	return c.UID == id, nil
}
