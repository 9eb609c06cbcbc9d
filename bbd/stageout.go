package bbd

import (
	"context"
	"path"
	"strings"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/flusher/backing"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
	"forebay/meta/txn"
)

// stageOut copies a file or a tree of the buffer to a store.
func (d *Daemon) stageOut(ctx context.Context, r *rpc.Request, m *wire.Stage) (proto.Message, error) {
	s, source, name, err := d.newStaging(ctx, r, "stage-out", m)
	if err != nil {
		return nil, err
	}
	defer func() { s.remote.Close() }()
	if d.transfers.Available() && !m.DryRun {
		return d.stageJob(ctx, r, ops.StageOut, s, source, name, m)
	}
	if !m.DryRun {
		s.sweeps("", true)
	}
	p := transfer.ProgressTo(r)
	report, err := s.stageOutHere(ctx, source, s.outName(ctx, source, name), stageOptions(m, p))
	answer, err := reported(p, &report, err)
	return answer, bb.Wrap("stage-out", s.b.address(source), err)
}

// sweeps has a stage-out remove what an earlier attempt left where it writes: once for each
// directory and job, and again for what another daemon began.
func (s *staging) sweeps(job string, again bool) {
	if again {
		job = ""
	}
	s.remote = s.b.d.unfinished.Sweeping(s.remote, s.cred, s.root, job)
}

// outName is the name of the object, or of the tree, that a path is staged out to: a
// file goes into a directory, as with cp.
func (s *staging) outName(ctx context.Context, source, name string) string {
	if strings.HasSuffix(s.url, "/") && source != "" {
		if e, err := s.b.lookup(ctx, s.cred, "stage-out", source); err == nil && !e.IsDir() {
			return path.Join(name, path.Base(source))
		}
	}
	return name
}

var _ stage.Tree = (*staging)(nil)

// Walk calls fn for a file, or every file below a directory.
func (s *staging) Walk(ctx context.Context, source string, fn func(stage.Entry) error) error {
	return s.files(ctx, source, func(p string, e *bb.Entry) error { return fn(leaving(p, e)) })
}

func (s *staging) files(ctx context.Context, source string, fn func(string, *bb.Entry) error) error {
	e, v, err := s.b.look(ctx, s.cred, "stage-out", source)
	if err != nil {
		return err
	}
	if !e.IsDir() {
		return fn(source, &e)
	}
	return s.b.walk(ctx, s.cred, &e, v, source, fn)
}

func leaving(p string, e *bb.Entry) stage.Entry {
	return stage.Entry{Path: p, File: e.File, Size: e.Size, Checksum: e.Checksum, Attrs: attrsOf(e)}
}

// Open pins what is in memory of a file's bytes.
func (s *staging) Open(ctx context.Context, entry stage.Entry) (stage.Pinned, error) {
	e, snap, err := s.b.openRead(ctx, s.cred, entry.Path)
	if err != nil {
		return nil, err
	}
	if e.Open {
		s.b.closeRead(e.File, snap)
		return nil, bb.E(bb.Busy, "stage-out", s.b.address(entry.Path), "the file is being written").WithRemedy("close it first")
	}
	f := &pinnedFile{snapshotSource{ctx: ctx, b: s.b, entry: &e, snap: snap}, entry.Path}
	if err := f.pin(); err != nil {
		s.b.closeRead(e.File, snap)
		return nil, err
	}
	return f, nil
}

// pinnedFile is a file whose bytes stay where they are while they are copied out.
type pinnedFile struct {
	snapshotSource
	path string
}

func (p *pinnedFile) Entry() stage.Entry { return leaving(p.path, p.entry) }

// Verify checks every extent that is in memory; the others are when they are read.
func (p *pinnedFile) Verify(ctx context.Context) error { return p.snap.Verify(ctx, 0, p.snap.Size()) }

// Close lets go of the bytes.
func (p *pinnedFile) Close() {
	p.close()
	p.b.closeRead(p.entry.File, p.snap)
}

// visitor is called with what a walk finds, and its path. Functions that are nil are not.
type visitor struct {
	enter func(string, *bb.Entry) error               // a directory, before what is in it
	file  func(string, *bb.Entry) error               // a file
	leave func(p string, e *bb.Entry, held int) error // a directory, after what is in it: so many entries
}

// walk calls fn for every file below a directory that the user may read.
func (b *buffer) walk(ctx context.Context, c access.Caller, dir *bb.Entry, v txn.UnionDir, p string, fn func(string, *bb.Entry) error) error {
	return b.walkTree(ctx, c, dir, v, p, visitor{file: fn})
}

// walkTree visits what lies in a directory that the user may read, and the directory itself.
func (b *buffer) walkTree(ctx context.Context, c access.Caller, dir *bb.Entry, v txn.UnionDir, p string, visit visitor) error {
	if !c.Permits(dir.UID, dir.GID, dir.Mode, access.Read|access.Execute) {
		return access.Denied("walk", b.address(p), "read the directory")
	}
	if visit.enter != nil {
		if err := visit.enter(p, dir); err != nil {
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
			} else if visit.file != nil {
				err = visit.file(child, e)
			}
			if err != nil {
				return err
			}
		}
		if !more {
			break
		}
	}
	if visit.leave == nil {
		return nil
	}
	return visit.leave(p, dir, held)
}

func attrsOf(e *bb.Entry) *backing.Attrs {
	return &backing.Attrs{Mode: e.Mode, UID: e.UID, GID: e.GID, MTime: e.MTime}
}
