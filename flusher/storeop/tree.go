package storeop

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"forebay/flusher/backing"
	"forebay/flusher/owned"
	"forebay/internal/bb"
)

// moveAtOnce is how many objects of a tree are moved at a time. Each waits for the store.
const moveAtOnce = 16

// moveTree moves objects of a buffer from below one directory to below another, and removes the
// directories that this leaves empty. Objects of others stay where they are, and so do those that
// other programs have put in place of the buffer's. It may be repeated after a failure or a crash,
// since an object that has moved is not found again. If something else has the name of an object,
// it is bb.Exists, after all others were moved.
func (c *Carrier) moveTree(ctx context.Context, store backing.Store, op *Op) error {
	objects, err := c.ownedBelow(ctx, store, op)
	if err != nil {
		return err
	}
	dirs := map[string]bool{op.Old: true}
	failed := make([]error, len(objects))
	var g errgroup.Group
	g.SetLimit(moveAtOnce)
	for i := range objects {
		noteDirs(dirs, op.Old, objects[i].Object)
		g.Go(func() error {
			failed[i] = c.moveObject(ctx, store, &objects[i], op.New+strings.TrimPrefix(objects[i].Object, op.Old))
			return nil
		})
	}
	_ = g.Wait() // the errors are in failed
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return failed[i]
	}
	// An attempt that a crash ended may have moved the last object of a directory.
	err = store.List(ctx, op.New+"/", func(o backing.Object) error {
		noteDirs(dirs, op.Old, op.Old+strings.TrimPrefix(o.Name, op.New))
		return nil
	})
	if err == nil {
		err = c.noteEmpty(ctx, store, dirs, op)
	}
	if err != nil {
		return err
	}
	return removeDirs(ctx, store, dirs)
}

// ownedBelow returns the objects below a directory that may be the buffer's.
func (c *Carrier) ownedBelow(ctx context.Context, store backing.Store, op *Op) (found []Owned, err error) {
	ours := c.Ours
	var objects []string
	err = store.List(ctx, op.Old+"/", func(o backing.Object) error {
		if ours == nil { // any object
			found = append(found, Owned{Object: o.Name, Was: []bb.Flushed{{Generation: 1, ETag: o.ETag, Size: o.Size}}})
		}
		objects = append(objects, o.Name)
		return nil
	})
	if err == nil && len(objects) > 0 && ours != nil {
		found, err = ours(ctx, *op, objects)
	}
	return found, err
}

// noteEmpty records the directories of ours below the old name that nothing was moved out of.
func (c *Carrier) noteEmpty(ctx context.Context, store backing.Store, dirs map[string]bool, op *Op) error {
	var found []string
	err := store.Others(ctx, op.Old, func(o backing.Other) error {
		if o.Mode.IsDir() && !dirs[o.Name] {
			found = append(found, o.Name)
		}
		return nil
	})
	if err == nil && len(found) > 0 {
		found, err = c.OurDirs(ctx, *op, found)
	}
	for _, dir := range found {
		dirs[dir] = true
	}
	return err
}

// noteDirs records the directories below top in which an object is.
func noteDirs(dirs map[string]bool, top, object string) {
	for dir := path.Dir(object); len(dir) > len(top) && !dirs[dir]; dir = path.Dir(dir) {
		dirs[dir] = true
	}
}

// removeDirs removes those directories that are empty, the deepest first.
func removeDirs(ctx context.Context, store backing.Store, dirs map[string]bool) error {
	deepest := make([]string, 0, len(dirs))
	for dir := range dirs {
		deepest = append(deepest, dir)
	}
	slices.SortFunc(deepest, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, dir := range deepest {
		if err := store.RemoveDir(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// moveObject moves an object, if it is this buffer's, to a name that nothing else may have.
func (c *Carrier) moveObject(ctx context.Context, store backing.Store, object *Owned, newName string) error {
	k := owned.Known{Flushed: object.Was, Unrecorded: c.Unrecorded(object.Object).And(owned.Unrecorded{Attempts: object.Attempts}), Codec: object.Codec}
	is, ours, err := k.Find(ctx, store, object.Object, func() {})
	if err != nil || !ours {
		return err
	}
	err = store.RenameIf(ctx, object.Object, newName, is, backing.Version{})
	var at *bb.Error
	switch {
	case !errors.Is(err, backing.ErrForeign):
		return ignoreNotFound(err)
	case errors.As(err, &at) && at.Path == object.Object:
		return owned.Changed("rename", object.Object)
	}
	return bb.E(bb.Exists, "rename", newName, "the store has another file there, which this buffer did not write: move or remove it there, then the rename of "+object.Object+" follows")
}
