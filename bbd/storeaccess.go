package bbd

import (
	"cmp"
	"context"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"forebay/bbd/storerules"
	"forebay/flusher/backing/detach"
	"forebay/flusher/backing/s3"
	"forebay/internal/bb"
	"forebay/internal/userfile"
)

// The URL of an object store is its user's: it names an endpoint, which is sent signed requests; a
// profile of credentials; files. What of it a user may have the daemon use, package storerules
// decides. Root and the daemon's own user may name anything: they can do it without the daemon.

// ownerCred are the rights that a buffer's store is used with: its owner's.
func ownerCred(spec *bb.Buffer) cred { return credOf(spec.UID, spec.GID) }

// site is what the configuration says of object stores.
func (d *Daemon) site() storerules.Site {
	return storerules.Site{Endpoint: cmp.Or(d.cfg.Backing.S3.Endpoint, s3.DefaultEndpoint), CA: d.cfg.Backing.S3.CAFile}
}

// mayUseStore reports whether a user may have the daemon use a store.
func (d *Daemon) mayUseStore(c cred, where bb.Backing) error {
	_, err := d.storeUse(c, where)
	return err
}

// storeUse is mayUseStore that returns what the URL of an object store asks for.
func (d *Daemon) storeUse(c cred, where bb.Backing) (use storerules.Use, err error) {
	if where.Scheme != "s3" || c.system {
		return use, nil
	}
	site := d.site()
	if use, err = storerules.UseOf(where, site); err != nil {
		return use, err
	}
	if isOwner(c.uid) && (use.Own || use.CA != "") {
		return use, bb.E(bb.Permission, "backing", cmp.Or(use.CA, "credentials"), "for somebody elsewhere no files are read as this daemon's own user")
	}
	rules := d.cfg.StoreRules
	if rules == nil {
		rules = storerules.Default()
	}
	return use, storerules.Check(rules, site, use, c.isUser)
}

// guardStore checks that a user may use the store behind a URL, and has the files that the URL
// names read as that user. Of what a rule names instead, the administrator has said that it may be read.
func (d *Daemon) guardStore(c cred, url string, o *s3.Options) error {
	where, err := bb.ParseBacking(url)
	if err != nil {
		return err
	}
	use, err := d.storeUse(c, where)
	if err != nil || !use.Own {
		return err
	}
	o.ReadFile = func(name string) ([]byte, error) {
		if name == d.cfg.Backing.S3.CAFile {
			return userfile.Read(name)
		}
		return d.readAs(c, name)
	}
	return nil
}

// readAs reads a file with a user's rights. A file system that does not answer is left behind; how
// often, is bounded for each user.
func (d *Daemon) readAs(c cred, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(d.ctx, storePatience, notAnswered(name))
	defer cancel()
	text, err := detach.Do(ctx, d.stores.readsOf(c.uid), "read", name, func(context.Context) ([]byte, error) {
		return userfile.ReadAs(name, userfile.User{UID: c.uid, Groups: c.gids})
	}, func([]byte) {})
	return text, answered(ctx, err)
}

// readsOf counts the reads of a user's files that hang.
func (s *stores) readsOf(uid uint32) *detach.Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.reads[uid]
	if c == nil {
		c = &detach.Calls{}
		s.mu.reads[uid] = c
	}
	return c
}

// isUser reports whether a rule's name means this user: a user's name or number, or @ and a
// group's. Names are those of the node's files; of users kept elsewhere, a rule gives the number.
func (c cred) isUser(name string) bool {
	if name == "*" {
		return true
	}
	if group, ok := strings.CutPrefix(name, "@"); ok {
		if g, err := user.LookupGroup(group); err == nil {
			group = g.Gid
		}
		return slices.ContainsFunc(c.gids, func(gid uint32) bool { return strconv.FormatUint(uint64(gid), 10) == group })
	}
	if u, err := user.Lookup(name); err == nil {
		name = u.Uid
	}
	return strconv.FormatUint(uint64(c.uid), 10) == name
}
