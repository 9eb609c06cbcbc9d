// Package walk visits the entries below a directory of a buffer, with the rights of a user. It must never
// depend on the visitor's use of them.
package walk

import (
	"context"
	"strings"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/meta/txn"
)

// Visitor is called with each entry of a walk, and its path. Functions that are nil are not.
type Visitor struct {
	Enter func(path string, e *bb.Entry) error           // a directory, before its entries
	File  func(path string, e *bb.Entry) error           // a file
	Leave func(path string, e *bb.Entry, held int) error // a directory, after its entries; their number
}

// Names are the methods of a namespace that a walk needs.
type Names interface {
	ListUnion(ctx context.Context, dir txn.UnionDir, after string, limit int) (entries []bb.Entry, more bool, err error)
	UnionBelow(ctx context.Context, above txn.UnionDir, e *bb.Entry) (txn.UnionDir, error)
}

// page is how many entries are read at a time.
const page = 2000

// Walk is a way to visit a buffer.
type Walk struct {
	Names  Names
	Buffer string // its name, for errors
	Caller access.Caller
	Visit  Visitor
}

// Tree visits a directory at a path, and all entries below it. Its first error, or one of the
// visitor's functions, ends it. It returns bb.NotFound if a directory was removed while its names
// were read.
func (w *Walk) Tree(ctx context.Context, path string, e *bb.Entry, dir txn.UnionDir) error {
	if !w.Caller.Permits(e.UID, e.GID, e.Mode, access.Read|access.Execute) {
		return access.Denied("walk", bb.Address{Buffer: w.Buffer, Path: path}.String(), "read the directory")
	}
	if w.Visit.Enter != nil {
		if err := w.Visit.Enter(path, e); err != nil {
			return err
		}
	}
	held := 0
	for after, more := "", true; more; {
		var entries []bb.Entry
		var err error
		if entries, more, err = w.Names.ListUnion(ctx, dir, after, page); err != nil {
			return err
		}
		held += len(entries)
		for i := range entries {
			after = entries[i].Name
			if err := w.entry(ctx, path, &entries[i], dir); err != nil {
				return err
			}
		}
	}
	if w.Visit.Leave == nil {
		return nil
	}
	return w.Visit.Leave(path, e, held)
}

// entry visits one of a directory's entries.
func (w *Walk) entry(ctx context.Context, path string, e *bb.Entry, dir txn.UnionDir) error {
	child := strings.TrimPrefix(path+"/"+e.Name, "/")
	if !e.IsDir() {
		if w.Visit.File == nil {
			return nil
		}
		return w.Visit.File(child, e)
	}
	below, err := w.Names.UnionBelow(ctx, dir, e)
	if err != nil {
		return err
	}
	return w.Tree(ctx, child, e, below)
}
