package flusher

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// moveAtOnce is how many objects of a tree are moved at a time: each waits for the store.
const moveAtOnce = 16

// moveTree moves objects of a buffer from below one directory to below another, and removes
// the directories that this leaves empty. What is not among ours stays where it is. It may be
// repeated after a failure or a crash: an object that has moved is not found again. bb.Exists,
// after all others were moved, if something else has the name of one of them.
func moveTree(ctx context.Context, store backing.Store, old, newName string, ours filters) error {
	var objects []string
	err := store.List(ctx, old+"/", func(o backing.Object) error {
		objects = append(objects, o.Name)
		return nil
	})
	if err == nil && len(objects) > 0 {
		objects, err = ours.objects(ctx, objects)
	}
	if err != nil {
		return err
	}
	dirs := map[string]bool{old: true}
	noteDirs(dirs, old, objects)
	failed := make([]error, len(objects))
	var g errgroup.Group
	g.SetLimit(moveAtOnce)
	for i, object := range objects {
		g.Go(func() error {
			failed[i] = moveObject(ctx, store, object, newName+strings.TrimPrefix(object, old))
			return nil
		})
	}
	_ = g.Wait() // the errors are in failed
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return failed[i]
	}
	// An attempt that a crash ended may have moved the last object of a directory.
	err = store.List(ctx, newName+"/", func(o backing.Object) error {
		noteDirs(dirs, old, []string{old + strings.TrimPrefix(o.Name, newName)})
		return nil
	})
	if err != nil {
		return err
	}
	if err := noteEmpty(ctx, store, dirs, old, ours); err != nil {
		return err
	}
	return removeDirs(ctx, store, dirs)
}

// noteEmpty notes the directories of ours below top that nothing was moved out of.
func noteEmpty(ctx context.Context, store backing.Store, dirs map[string]bool, top string, ours filters) error {
	var found []string
	err := store.Others(ctx, top, func(o backing.Other) error {
		if o.Mode.IsDir() && !dirs[o.Name] {
			found = append(found, o.Name)
		}
		return nil
	})
	if err == nil && len(found) > 0 {
		found, err = ours.dirs(ctx, found)
	}
	for _, dir := range found {
		dirs[dir] = true
	}
	return err
}

// noteDirs notes the directories below top in which objects are.
func noteDirs(dirs map[string]bool, top string, objects []string) {
	for _, object := range objects {
		for dir := path.Dir(object); len(dir) > len(top) && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
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

// moveObject moves an object to a name that nothing else may have.
func moveObject(ctx context.Context, store backing.Store, old, newName string) error {
	there, err := store.Stat(ctx, newName)
	if err != nil && !errors.Is(err, bb.NotFound) {
		return err
	}
	if err == nil {
		from, err := store.Stat(ctx, old)
		if errors.Is(err, bb.NotFound) {
			return nil // moved by an attempt of which nothing was heard
		}
		if err != nil {
			return err
		}
		if !sameObject(&from, &there) {
			return bb.E(bb.Exists, "rename", newName, "the store has another file there, which this buffer did not write: move or remove it there, then the rename of "+old+" follows")
		}
	}
	if err := store.Rename(ctx, old, newName); !errors.Is(err, bb.NotFound) {
		return err
	}
	return nil
}

// sameObject reports whether two names have the same content, as a move leaves them that ended
// between its two steps.
func sameObject(a, b *backing.Object) bool {
	if a.Size != b.Size {
		return false
	}
	if a.HasChecksum && b.HasChecksum {
		return a.Checksum == b.Checksum
	}
	return a.ETag != "" && a.ETag == b.ETag
}
