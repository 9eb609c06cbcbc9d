package txn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/namespace"
	"forebay/meta/retry"
)

// Adopted files are merged into a transaction's output, and the output of one that is
// decided into its destination, by renaming entry after entry. Any number of processes may
// be at it at once, and each may die anywhere:
//
//   - An entry that is not where it was has been moved by another one.
//   - An entry in the way of another is removed only if the other is still in its old place after
//     that was found. Otherwise it might be the result of another process. Entries that replacing
//     removes were found while the state was replacing, and nothing is folded then.
//   - A file is not removed if a file of the output will have its name. It is replaced when that is
//     folded. So the store's content of the name stays there until the new file is flushed
//     (bb.Entry.Replaced), even if the flush of the old file ends during the fold.
//   - Directories are removed by their ids, and files if they are still the same, so that no late
//     removal meets a successor of the same name.
const (
	movesAtOnce = 64   // renames and removals
	breadth     = 32   // entries of one directory
	maxPasses   = 1000 // over a directory that others keep filling
)

// Mover changes the places of entries. It may be called concurrently.
type Mover interface {
	// Rename moves an entry to another place. It returns Exists if that is in use, and NotFound if
	// the entry, or the directory that it is to go to, is gone.
	Rename(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error
	// Replace is Rename of a file to where another file is.
	Replace(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error
	// Remove removes a file or an empty directory if it is still at its place.
	Remove(ctx context.Context, e *bb.Entry) error
	// Folded is called when all of a transaction's output has its final place. It may be called
	// again.
	Folded(ctx context.Context, id bb.TxnID) error
}

// Merger is a Mover that moves many entries in a change.
type Merger interface {
	// Merge moves the content of a directory to the same names of another one, where they are free.
	// Where both have a directory, which no transaction is committed into, it moves that one's
	// content, and may remove it if nothing is left in it. The others stay. They are moved one by
	// one. If the other directory is gone, it is NotFound.
	Merge(ctx context.Context, from, to bb.DirID) error
}

// Move is an entry that may move to another directory.
type Move struct {
	Name     string
	From, To bb.DirID
}

// errEnough ends a scan.
var errEnough = errors.New("there are enough")

// Movable returns some of the moves that Merge of two directories consists of: those of entries that
// nothing is in the way of. Others may change that at any time.
func (x *Transactions) Movable(ctx context.Context, from, to bb.DirID, atMost int) (moves []Move, err error) {
	err = x.ns.Scan(ctx, from, func(e bb.Entry) error {
		there, taken, err := x.ns.Find(ctx, to, e.Name)
		switch {
		case err == nil && !taken:
			moves = append(moves, Move{e.Name, from, to})
		case err == nil && e.IsDir() && there.IsDir():
			var below []Move
			below, err = x.Movable(ctx, e.Dir, there.Dir, atMost-len(moves))
			moves = append(moves, below...)
		}
		if err == nil && len(moves) >= atMost {
			err = errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) || errors.Is(err, bb.NotFound) {
		err = nil // it is gone, as another one has merged it
	}
	return moves, err
}

// materializer carries out the moves of one transaction.
type materializer struct {
	x    *Transactions
	mv   Mover
	slot chan struct{}
}

func (x *Transactions) materializer(mv Mover) *materializer {
	return &materializer{x: x, mv: mv, slot: make(chan struct{}, movesAtOnce)}
}

// errNoTarget: the directory that something was to be merged into has been removed.
var errNoTarget = errors.New("the directory has been removed")

func (f *materializer) rename(ctx context.Context, e *bb.Entry, dir bb.DirID) error {
	f.slot <- struct{}{}
	defer func() { <-f.slot }()
	return f.mv.Rename(ctx, e, dir, e.Name)
}

func (f *materializer) replaceFile(ctx context.Context, e *bb.Entry, dir bb.DirID) error {
	f.slot <- struct{}{}
	defer func() { <-f.slot }()
	return f.mv.Replace(ctx, e, dir, e.Name)
}

// remove succeeds if the entry is gone.
func (f *materializer) remove(ctx context.Context, e *bb.Entry) error {
	f.slot <- struct{}{}
	defer func() { <-f.slot }()
	err := f.mv.Remove(ctx, e)
	if errors.Is(err, bb.NotFound) {
		return nil
	}
	return err
}

// each calls fn for the entries of a directory, several at a time, until it is empty or gone.
// Fn has to take its entry away.
func (f *materializer) each(ctx context.Context, dir bb.DirID, fn func(context.Context, *bb.Entry) error) error {
	for range maxPasses {
		page, err := f.x.ns.Sample(ctx, dir)
		if err != nil || len(page) == 0 {
			return err
		}
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(breadth)
		for i := range page {
			g.Go(func() error { return fn(gctx, &page[i]) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return bb.E(bb.Busy, "transaction", dir.String(), "others keep adding entries")
}

// there reports whether an entry is still at its place.
func (f *materializer) there(ctx context.Context, e *bb.Entry) (bool, error) {
	now, err := f.x.ns.Lookup(ctx, e.Parent, e.Name)
	if errors.Is(err, bb.NotFound) {
		return false, nil
	}
	return err == nil && same(&now, e), err
}

func same(a, b *bb.Entry) bool { return a.File == b.File && a.Dir == b.Dir }

// merge moves the content of a directory into another one, at first the entries whose names are free.
func (f *materializer) merge(ctx context.Context, from, to bb.DirID) error {
	if m, ok := f.mv.(Merger); ok {
		if err := m.Merge(ctx, from, to); err != nil && !errors.Is(err, bb.NotFound) {
			return err
		}
	}
	return f.each(ctx, from, func(ctx context.Context, e *bb.Entry) error { return f.mergeEntry(ctx, e, to) })
}

func (f *materializer) mergeEntry(ctx context.Context, e *bb.Entry, to bb.DirID) error {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		err := f.tryMerge(ctx, e, to)
		switch bb.KindOf(err) {
		case bb.Exists, bb.IsDirectory, bb.NotEmpty:
		case bb.NotFound:
			there, err := f.there(ctx, e)
			if err != nil || !there {
				return err
			}
			if gone, err := f.x.ns.DirGone(ctx, to); err != nil || gone {
				return errors.Join(err, errNoTarget)
			}
		default:
			if !errors.Is(err, errNoTarget) && !errors.Is(err, kv.ErrConflict) {
				return err
			}
		}
		f.x.ns.Refresh(to, e.Name)
	}
	return bb.E(bb.Busy, "transaction", e.Name, "its destination keeps changing")
}

func (f *materializer) tryMerge(ctx context.Context, e *bb.Entry, to bb.DirID) error {
	if err := f.rename(ctx, e, to); !errors.Is(err, bb.Exists) {
		return err
	}
	target, err := f.x.ns.Lookup(ctx, to, e.Name)
	switch {
	case errors.Is(err, bb.NotFound):
		return kv.Wrap("transaction", e.Name, kv.ErrRevision)
	case err != nil || same(&target, e): // another one has moved it
		return err
	case target.IsDir() && e.IsDir() && target.Txn != 0:
		return &namespace.Unfolded{ID: target.Txn}
	case target.IsDir() && e.IsDir():
		if err := f.merge(ctx, e.Dir, target.Dir); err != nil {
			return err
		}
		return f.remove(ctx, e)
	case !target.IsDir() && !e.IsDir():
		return f.replaceFile(ctx, e, to)
	}
	// One is a file and the other a directory.
	if there, err := f.there(ctx, e); err != nil || !there {
		return err
	}
	if err := f.clear(ctx, &target); err != nil {
		return err
	}
	return f.rename(ctx, e, to)
}

// clear removes an entry with all that it holds.
func (f *materializer) clear(ctx context.Context, e *bb.Entry) error {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		if e.IsDir() {
			if err := f.each(ctx, e.Dir, f.clear); err != nil {
				return err
			}
		}
		err := f.remove(ctx, e)
		if bb.KindOf(err) != bb.NotEmpty && !errors.Is(err, kv.ErrConflict) {
			return err
		}
	}
	return bb.E(bb.NotEmpty, "transaction", e.Name, "others keep adding entries")
}

// MergeTask moves the files of the adopted attempt of a task into the output, records
// that, and removes those of other attempts. None of them can be begun any more.
func (x *Transactions) MergeTask(ctx context.Context, id bb.TxnID, task, attempt string, mv Mover) error {
	f := x.materializer(mv)
	output, err := x.ns.Resolve(ctx, (&bb.Txn{ID: id}).Path()+"/"+outputDir)
	if errors.Is(err, bb.NotFound) {
		return nil // it was over before this
	}
	if err != nil {
		return err
	}
	of, err := x.ns.Resolve(ctx, (&bb.Txn{ID: id}).Path()+"/"+attemptDir+"/"+task)
	if errors.Is(err, bb.NotFound) {
		return x.noteMerged(ctx, id, task) // it has written nothing
	}
	if err != nil {
		return err
	}
	e, err := x.ns.Lookup(ctx, of.Dir, attempt)
	if err == nil {
		err = f.merge(ctx, e.Dir, output.Dir)
	}
	if err != nil && !errors.Is(err, bb.NotFound) {
		return err
	}
	if err := x.noteMerged(ctx, id, task); err != nil {
		return err
	}
	// The winner's own directories are empty, and go with the transaction.
	return x.ns.Scan(ctx, of.Dir, func(e bb.Entry) error {
		if e.Name == attempt {
			return nil
		}
		return f.clear(ctx, &e)
	})
}

// DropAttempt removes the files of an attempt that is not a task's output.
func (x *Transactions) DropAttempt(ctx context.Context, id bb.TxnID, task, attempt string, mv Mover) error {
	e, err := x.ns.Resolve(ctx, strings.Join([]string{bb.HiddenDir, id.String(), attemptDir, task, attempt}, "/"))
	if err == nil {
		err = x.materializer(mv).clear(ctx, &e)
	}
	if errors.Is(err, bb.NotFound) {
		return nil
	}
	return err
}

// MergeTasks is MergeTask of all tasks that were adopted and are not merged.
func (x *Transactions) MergeTasks(ctx context.Context, id bb.TxnID, mv Mover) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(breadth)
	err := x.eachTask(ctx, id, func(task string, t *metapb.TxnTask) {
		if !t.GetMerged() {
			g.Go(func() error { return x.MergeTask(gctx, id, task, t.GetAttempt(), mv) })
		}
	})
	return errors.Join(g.Wait(), err)
}

// MaterializeTxn moves the output of a decided transaction to its final places. An error of type
// *Unfolded names another transaction that has to be folded first.
func (x *Transactions) MaterializeTxn(ctx context.Context, id bb.TxnID, mv Mover) error {
	f := x.materializer(mv)
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		t, err := x.Txn(ctx, id)
		if errors.Is(err, bb.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		switch t.State {
		case bb.TxnReplacing:
			err = f.replace(ctx, &t)
		case bb.TxnFolding:
			err = f.materialize(ctx, &t)
		default:
			return nil
		}
		if err != nil && !errors.Is(err, kv.ErrRevision) {
			return kv.Wrap("transaction", t.Destination, err)
		}
	}
	return kv.Wrap("transaction", id.String(), kv.ErrRevision)
}

// replace removes the entries that a transaction replaces, and has it folded then.
func (f *materializer) replace(ctx context.Context, t *bb.Txn) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(breadth)
	for _, p := range t.Replace {
		g.Go(func() error { return f.replacePath(gctx, t, p) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	decided, err := f.x.records.Get(ctx, decidedKey)
	if err != nil {
		return err
	}
	next := *t
	next.State = bb.TxnFolding
	data, err := sealTxn(&next)
	if err != nil {
		return err
	}
	_, err = f.x.records.Commit(ctx, []kv.Change{
		{Key: txnKey(t.ID), Data: data, Expected: t.Revision},
		{Key: decidedKey, Data: []byte("-"), Expected: decided.Seq},
	})
	f.x.decisions.Add(1)
	return err
}

// replacePath removes the entry at a path below the destination. Of the destination itself, it
// removes the content. Files stay where the output has a file of the same name. Folding puts that
// in their place in one step, so that durable content under a name stays durable until the flush of
// the new file.
func (f *materializer) replacePath(ctx context.Context, t *bb.Txn, p string) error {
	old := &bb.Entry{Type: bb.TypeDirectory, Dir: t.Dir}
	by := &bb.Entry{Type: bb.TypeDirectory, Dir: t.Output}
	if p != "" {
		for name := range strings.SplitSeq(p, "/") {
			var err error
			if old, err = f.below(ctx, old, name); err != nil || old == nil {
				return err
			}
			if by, err = f.below(ctx, by, name); err != nil {
				return err
			}
		}
	}
	_, err := f.displace(ctx, t, old, by)
	return err
}

// below returns the entry of a name in a directory, or nil if there is none.
func (f *materializer) below(ctx context.Context, dir *bb.Entry, name string) (*bb.Entry, error) {
	if dir == nil || !dir.IsDir() {
		return nil, nil
	}
	e, err := f.x.ns.Lookup(ctx, dir.Dir, name)
	if errors.Is(err, bb.NotFound) {
		return nil, nil
	}
	return &e, err
}

// displaced is the fate of a replaced entry.
type displaced uint8

const (
	removedWhole displaced = iota // it goes, with all that it holds
	removedPart                   // a directory, of which some content may stay
	stays
)

// displacement decides about an entry that is replaced where the output has another one, or
// none (nil), at the same path.
func displacement(old, by *bb.Entry) displaced {
	switch {
	case by == nil || old.IsDir() != by.IsDir():
		return removedWhole
	case old.IsDir():
		return removedPart
	default:
		return stays
	}
}

// displace removes an entry that is replaced, as displacement decides, and reports whether it
// is still there. The root of the destination always is.
func (f *materializer) displace(ctx context.Context, t *bb.Txn, old, by *bb.Entry) (stay bool, err error) {
	what := displacement(old, by)
	if what == removedPart {
		stay, err = f.displaceBelow(ctx, t, old, by)
		stay = stay || old.Dir == t.Dir
	}
	if what == stays || stay || err != nil {
		return true, err
	}
	// It was found before this, while nothing had been folded.
	if now, err := f.x.Txn(ctx, t.ID); err != nil || now.Revision != t.Revision {
		return false, errors.Join(err, kv.ErrRevision)
	}
	if what == removedWhole {
		return false, f.clear(ctx, old)
	}
	// Another process may be ahead, and fold into the directory by now.
	if err = f.remove(ctx, old); bb.KindOf(err) == bb.NotEmpty {
		return true, nil
	}
	return false, err
}

// displaceBelow is displace of all that a directory holds, until a pass finds nothing to remove.
func (f *materializer) displaceBelow(ctx context.Context, t *bb.Txn, old, by *bb.Entry) (stay bool, err error) {
	for range maxPasses {
		var staying, gone atomic.Int64
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(breadth)
		err := f.x.ns.Scan(ctx, old.Dir, func(e bb.Entry) error {
			g.Go(func() error {
				stay, err := f.displaceEntry(gctx, t, &e, by)
				if stay {
					staying.Add(1)
				} else {
					gone.Add(1)
				}
				return err
			})
			return gctx.Err()
		})
		if errors.Is(err, bb.NotFound) {
			err = nil // another one has removed the directory
		}
		if err := errors.Join(g.Wait(), err); err != nil || gone.Load() == 0 {
			return staying.Load() > 0, err
		}
	}
	return false, bb.E(bb.Busy, "transaction", old.Name, "others keep adding entries")
}

func (f *materializer) displaceEntry(ctx context.Context, t *bb.Txn, old, dir *bb.Entry) (stay bool, err error) {
	by, err := f.below(ctx, dir, old.Name)
	if err != nil {
		return false, err
	}
	return f.displace(ctx, t, old, by)
}

// materialize merges the output into the destination, and takes the mark off.
func (f *materializer) materialize(ctx context.Context, t *bb.Txn) error {
	err := f.merge(ctx, t.Output, t.Dir)
	if err != nil && !errors.Is(err, errNoTarget) {
		return err
	}
	if err := f.mv.Folded(ctx, t.ID); err != nil {
		return err
	}
	e, err := f.x.ns.EntryOf(ctx, t.Dir)
	switch {
	case errors.Is(err, bb.NotFound):
		// The mark is off already, and the directory was removed since.
	case err != nil:
		return err
	case e.Txn == t.ID:
		_, err = f.x.ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
			if now.Dir != t.Dir {
				return kv.ErrRevision // it was renamed meanwhile
			}
			if now.Txn == t.ID {
				now.Txn = 0
			}
			return nil
		})
		if errors.Is(err, bb.NotFound) {
			return kv.ErrRevision
		}
		if err != nil {
			return err
		}
	}
	_, err = f.x.changeTxn(ctx, "transaction", t.ID, func(now *bb.Txn) (bool, error) {
		folding := now.State == bb.TxnFolding
		now.State = bb.TxnFolded
		return folding, nil
	})
	if err != nil {
		return err
	}
	return f.x.CleanTxn(ctx, t.ID, f.mv)
}

// CleanTxn removes the remains of a transaction that is over. Its record stays, and answers
// repeated commits and aborts.
func (x *Transactions) CleanTxn(ctx context.Context, id bb.TxnID, mv Mover) error {
	t, err := x.Txn(ctx, id)
	if err != nil && !errors.Is(err, bb.NotFound) {
		return err
	}
	if err == nil && !t.State.Over() {
		return bb.E(bb.Busy, "transaction", id.String(), "it is "+string(t.State))
	}
	e, err := x.ns.Resolve(ctx, (&bb.Txn{ID: id}).Path())
	if err == nil {
		err = x.materializer(mv).clear(ctx, &e)
	}
	if err != nil && !errors.Is(err, bb.NotFound) {
		return err
	}
	return x.forgetTasks(ctx, id)
}

// HiddenTxns returns the ids of transactions that have a hidden tree.
func (x *Transactions) HiddenTxns(ctx context.Context) ([]bb.TxnID, error) {
	e, err := x.ns.Lookup(ctx, bb.RootDir, bb.HiddenDir)
	if errors.Is(err, bb.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []bb.TxnID
	err = x.ns.Scan(ctx, e.Dir, func(e bb.Entry) error {
		if id, err := bb.ParseTxnID(e.Name); err == nil {
			ids = append(ids, id)
		}
		return nil
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}
