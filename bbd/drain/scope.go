package drain

import (
	"context"
	"maps"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/transfer"
	"forebay/bbd/walk"
	"forebay/flusher"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

// A drain below a path goes by the namespace. It waits for the contents that files have there when
// it begins, and then for the renames and removals that concern them. Files of others in the same
// buffer that cannot be saved do not delay it.

// scope is the part of a buffer that a drain waits for: all of it, or a path and everything below it.
type scope struct {
	Buffer
	s     *Service
	name  string // the buffer's
	below string // "": all
}

func (s *Service) scope(b Buffer, below string) scope { return scope{b, s, b.Spec().Name, below} }

// address returns bb://buffer/path.
func (c scope) address(path string) string {
	return bb.Address{Buffer: c.name, Path: path}.String()
}

// has reports whether a path is part of it, or leads to it.
func (c scope) has(path string) bool { return bb.Overlaps(path, c.below) }

// content is one content of one file.
type content struct {
	file       bb.FileID
	generation bb.Generation
}

func contentOf(e *bb.Entry) content { return content{e.File, e.Generation} }

func (c scope) key(e *bb.Entry) flusher.Key {
	return flusher.Key{Buffer: c.name, File: e.File, Generation: e.Generation}
}

// each calls visit with its files, and with a function that finds the path of each, or bb.NotFound if
// it is removed meanwhile. In a whole buffer each path takes a request.
func (c scope) each(ctx context.Context, visit func(e *bb.Entry, path func() (string, error)) error) error {
	if c.below == "" {
		return c.Names().ScanAll(ctx, func(e bb.Entry) error {
			if e.IsDir() {
				return nil
			}
			return visit(&e, func() (string, error) { return c.Path(ctx, &e) })
		})
	}
	found, err := c.files(ctx)
	for i := 0; i < len(found) && err == nil; i++ {
		err = visit(&found[i].entry, func() (string, error) { return found[i].path, nil })
	}
	return err
}

// walkTries is how often a tree is walked that changes meanwhile.
const walkTries = 5

// located is a file with its path.
type located struct {
	path  string
	entry bb.Entry
}

func pathsOf(files []located) []string {
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = files[i].path
	}
	return paths
}

// files returns those at the path and below it.
func (c scope) files(ctx context.Context) (found []located, err error) {
	for range walkTries {
		found = nil
		err = c.Walk(ctx, access.Daemon(), "drain", c.below, walk.Visitor{File: func(path string, e *bb.Entry) error {
			found = append(found, located{path, *e})
			return nil
		}})
		if bb.KindOf(err) != bb.NotFound { // else a directory went while its names were read
			break
		}
	}
	return found, err
}

// removed reports whether nothing has the path any more.
func (c scope) removed(ctx context.Context) bool {
	_, err := c.Names().Resolve(ctx, c.below)
	return bb.KindOf(err) == bb.NotFound
}

// materialize ends the transactions that are decided and whose output lies there.
func (c scope) materialize(ctx context.Context) error {
	all, err := c.Names().Txns(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		if t := &all[i]; t.State.Decided() && !t.State.Over() && c.has(t.Destination) {
			err = c.Materialize(ctx, t.ID)
		}
	}
	return err
}

// opsEvery is how often pending operations of the store are read again.
const opsEvery = 20 * time.Millisecond

// carriedOut waits until no daemon has anything left to do on the store. bb.Unavailable,
// naming the node, if ctx ends first.
func (c scope) carriedOut(ctx context.Context) error {
	if c.below == "" && c.s.o.Cluster == nil {
		return nil // the flusher waits for them
	}
	for {
		ops, err := c.operations(ctx)
		if err != nil || len(ops) == 0 {
			return err
		}
		op := &ops[0]
		away := func(state string) *bb.Error {
			return bb.E(bb.Unavailable, "drain", c.address(op.OldPath), "node "+string(op.By)+state)
		}
		switch ours := c.s.o.Cluster == nil || op.By == "" || op.By == c.s.o.Node; {
		case ours:
			if err := c.s.o.Flusher.OpsStuck(c.name, op.OldPath); err != nil {
				return bb.Wrap("drain", c.address(op.OldPath), err)
			}
		case !c.s.o.Cluster.Serves(op.By):
			return away(", whose rename or removal on the store is pending, does not answer").
				WithRemedy("wait for it; if it will not return: bbctl node forget " + string(op.By))
		}
		select {
		case <-time.After(opsEvery):
		case <-ctx.Done():
			return away(" has a rename or removal pending on the store")
		}
	}
}

// operations returns those that concern it.
func (c scope) operations(ctx context.Context) ([]namespace.StoreOp, error) {
	all, err := c.Names().StoreOps(ctx)
	return slices.DeleteFunc(all, func(op namespace.StoreOp) bool {
		return !c.has(op.OldPath) && (op.NewPath == "" || !c.has(op.NewPath))
	}), err
}

// rest returns which of the files are dirty, superseded, or lost. A path that has been removed since has
// nothing left.
func (c scope) rest(ctx context.Context) (rest, error) {
	left := rest{dirty: map[content]string{}}
	keep := c.Spec().NoFlush
	err := c.each(ctx, func(e *bb.Entry, find func() (string, error)) error {
		state := e.State()
		if state != bb.StateDirty && state != bb.StateLost {
			return nil
		}
		path, err := find()
		if bb.KindOf(err) == bb.NotFound {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		if state == bb.StateLost {
			left.addFile(e, path)
		} else if _, excluded := plan.Excluded(keep, path); !excluded {
			left.dirty[contentOf(e)] = path
		}
		return nil
	})
	if bb.KindOf(err) == bb.NotFound && c.below != "" && c.removed(ctx) {
		return rest{}, nil
	}
	if err != nil {
		return left, err
	}
	return left, c.leaveOutSuperseded(ctx, &left)
}

// leaveOutSuperseded takes the files out that are dirty in superseded steps, and names those steps instead.
func (c scope) leaveOutSuperseded(ctx context.Context, left *rest) error {
	superseded, err := c.Rules().Superseded(ctx, slices.Collect(maps.Values(left.dirty)))
	if err != nil || len(superseded) == 0 {
		return err
	}
	left.superseded = map[string]string{}
	maps.DeleteFunc(left.dirty, func(_ content, path string) bool {
		s, ok := superseded[path]
		if ok {
			left.superseded[s.Step] = s.By
		}
		return ok
	})
	return nil
}

// addAway adds the files that are not saved because their owner does not answer.
func (c scope) addAway(ctx context.Context, answer *wire.Progress, isAway func(bb.NodeID) bool) error {
	return c.each(ctx, func(e *bb.Entry, find func() (string, error)) error {
		state, owner := e.State(), c.Owner(e)
		if state != bb.StateDirty && state != bb.StateOpen || !isAway(owner) {
			return nil
		}
		answer.FailedTotal++
		answer.FilesTotal++
		answer.BytesTotal += e.Size
		if len(answer.Failed) >= transfer.MaxNamed {
			return nil
		}
		path, err := find()
		if err != nil {
			path = e.Name
		}
		answer.Failed = append(answer.Failed, &wire.Failure{
			Path: path, Kind: uint32(bb.Unavailable), Bytes: e.Size, Reason: cluster.AwayReason(owner),
		})
		return nil
	})
}
