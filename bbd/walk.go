package bbd

import (
	"context"
	"strings"

	"forebay/bbd/access"
	"forebay/bbd/staging"
	"forebay/internal/bb"
	"forebay/meta/txn"
)

// walk calls fn for every file below a directory that the user may read.
func (b *buffer) walk(ctx context.Context, c access.Caller, dir *bb.Entry, v txn.UnionDir, p string, fn func(string, *bb.Entry) error) error {
	return b.walkTree(ctx, c, dir, v, p, staging.Visitor{File: fn})
}

// walkTree visits what lies in a directory that the user may read, and the directory itself.
func (b *buffer) walkTree(ctx context.Context, c access.Caller, dir *bb.Entry, v txn.UnionDir, p string, visit staging.Visitor) error {
	if !c.Permits(dir.UID, dir.GID, dir.Mode, access.Read|access.Execute) {
		return access.Denied("walk", b.address(p), "read the directory")
	}
	if visit.Enter != nil {
		if err := visit.Enter(p, dir); err != nil {
			return err
		}
	}
	held := 0
	for after := ""; ; {
		entries, more, err := b.ns.ListUnion(ctx, v, after, maxListPage)
		if err != nil {
			return err
		}
		held += len(entries)
		for i := range entries {
			e := &entries[i]
			child := strings.TrimPrefix(p+"/"+e.Name, "/")
			after = e.Name
			if e.IsDir() {
				var below txn.UnionDir
				if below, err = b.ns.UnionBelow(ctx, v, e); err == nil {
					err = b.walkTree(ctx, c, e, below, child, visit)
				}
			} else if visit.File != nil {
				err = visit.File(child, e)
			}
			if err != nil {
				return err
			}
		}
		if !more {
			break
		}
	}
	if visit.Leave == nil {
		return nil
	}
	return visit.Leave(p, dir, held)
}
