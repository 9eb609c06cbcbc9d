package bbd

import (
	"context"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// stageOut copies a file or a tree of the buffer to a store.
func (r *request) stageOut(m *wire.Stage) (proto.Message, error) {
	s, name, err := r.newStage("stage-out", m)
	if err != nil {
		return nil, err
	}
	defer s.remote.Close()
	if err := s.out(r.ctx, name); err != nil {
		return nil, bb.Wrap("stage-out", s.b.address(s.path), err)
	}
	return s.progress.done(), nil
}

func (s *stage) out(ctx context.Context, name string) error {
	e, err := s.b.lookup(ctx, s.cred, "stage-out", s.path)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.parallel)
	if !e.IsDir() {
		if name == "" || strings.HasSuffix(s.url, "/") {
			name = strings.TrimPrefix(name+"/"+path.Base(s.path), "/")
		}
		s.outFile(ctx, group, s.path, name, e.Size)
		return group.Wait()
	}
	err = s.b.walk(ctx, s.cred, &e, s.path, func(p string, e *bb.Entry) error {
		below := strings.TrimPrefix(strings.TrimPrefix(p, s.path), "/")
		s.outFile(ctx, group, p, strings.TrimPrefix(name+"/"+below, "/"), e.Size)
		return ctx.Err()
	})
	if waited := group.Wait(); waited != nil {
		err = waited
	}
	return err
}

// walk calls fn for every file below a directory that the user may read.
func (b *buffer) walk(ctx context.Context, c cred, dir *bb.Entry, p string, fn func(string, *bb.Entry) error) error {
	if !c.permits(dir.UID, dir.GID, dir.Mode, wantRead|wantExecute) {
		return denied("walk", b.address(p), "read the directory")
	}
	for after := ""; ; {
		entries, more, err := b.ns.List(ctx, dir.Dir, after, maxListPage)
		if err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			child := strings.TrimPrefix(p+"/"+e.Name, "/")
			after = e.Name
			if e.IsDir() {
				err = b.walk(ctx, c, e, child, fn)
			} else {
				err = fn(child, e)
			}
			if err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

func (s *stage) outFile(ctx context.Context, group *errgroup.Group, from, to string, size int64) {
	s.progress.update(func(m *wire.Progress) { m.FilesTotal++; m.BytesTotal += size })
	if s.dryRun {
		s.progress.update(func(m *wire.Progress) { m.Names = append(m.Names, s.b.address(from)+" → "+to) })
		return
	}
	group.Go(func() error {
		err := s.copyOut(ctx, from, to)
		switch {
		case err == nil:
			return s.progress.update(func(m *wire.Progress) { m.FilesDone++; m.BytesDone += size })
		case err == errEqual:
			return s.progress.skipped(from, size)
		case ctx.Err() != nil:
			return err
		}
		return s.progress.failed(from, size, err)
	})
}

func (s *stage) copyOut(ctx context.Context, from, to string) error {
	e, snap, err := s.b.openRead(ctx, s.cred, from)
	if err != nil {
		return err
	}
	defer s.b.closeRead(e.File, snap)
	if e.Open {
		return bb.E(bb.Busy, "stage-out", s.b.address(from), "the file is being written").WithRemedy("close it first")
	}
	there, err := s.remote.Stat(ctx, to)
	if err == nil && there.HasChecksum && there.Size == e.Size && there.Checksum == e.Checksum {
		return errEqual
	}
	if err == nil && !there.HasChecksum && there.Size == e.Size && there.MTime.Equal(e.MTime) {
		return errEqual
	}
	pinned, _, err := s.b.pin(ctx, snap, &e, 0, snap.Size())
	if err != nil {
		return err
	}
	defer pinned.Release()
	if err := snap.Verify(ctx, 0, snap.Size()); err != nil {
		return err
	}
	_, err = s.remote.Put(ctx, to, snapshotSource{snap, e.Checksum}, backing.PutOptions{Attrs: attrsOf(&e)})
	return err
}

func attrsOf(e *bb.Entry) *backing.Attrs {
	return &backing.Attrs{Mode: e.Mode, UID: e.UID, GID: e.GID, MTime: e.MTime}
}

// mayStage checks that a user may read or write a path that the daemon, running as
// root, could in any case. It walks up to what exists.
func (d *Daemon) mayStage(c cred, p string, write bool) error {
	if c.system {
		return nil
	}
	for {
		info, err := os.Stat(p)
		if os.IsNotExist(err) && p != "/" {
			p = path.Dir(p)
			continue
		}
		if err != nil {
			return bb.Wrap("stage", p, err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		wanted := wantRead
		if write {
			wanted = wantWrite
		}
		if !ok || !c.permits(stat.Uid, stat.Gid, info.Mode(), wanted) {
			return denied("stage", p, "use this path")
		}
		return nil
	}
}
