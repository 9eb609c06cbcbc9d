package staging

import (
	"context"
	"path"
	"strings"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/call"
	"forebay/bbd/transfer"
	"forebay/bbd/walk"
	"forebay/flusher/backing"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// Out copies a file or a tree of the buffer to a store.
func (v *Service) Out(ctx context.Context, r call.Request, m *wire.Stage) (proto.Message, error) {
	s, source, name, err := v.request(ctx, r, "stage-out", m)
	if err != nil {
		return nil, err
	}
	defer func() { s.remote.Close() }()
	if v.o.Transfers.Available() && !m.DryRun {
		return v.run(ctx, r, ops.StageOut, s, source, name, m)
	}
	if !m.DryRun {
		s.sweeps("", true)
	}
	p := transfer.ProgressTo(r)
	report, err := s.stageOutHere(ctx, source, s.outName(ctx, source, name), stageOptions(m, p))
	answer, err := reported(p, &report, err)
	return answer, bb.Wrap("stage-out", s.address(source), err)
}

// sweeps makes a stage-out remove the leftovers of an earlier attempt in the directories that it
// writes to. It does so once for each directory and job, and again for those of another daemon.
func (s *job) sweeps(job string, again bool) {
	if again {
		job = ""
	}
	s.remote = s.of.o.Sweeping(s.remote, s.cred, s.root, job)
}

// outName is the name of the object, or of the tree, that a path is staged out to. A file goes into
// a directory, as with cp.
func (s *job) outName(ctx context.Context, source, name string) string {
	if intoDirectory(s.url) && source != "" {
		if e, err := s.b.Lookup(ctx, s.cred, "stage-out", source); err == nil && !e.IsDir() {
			return path.Join(name, path.Base(source))
		}
	}
	return name
}

// intoDirectory reports whether a store's URL ends like a directory, not counting its parameters.
func intoDirectory(url string) bool {
	at, _, _ := strings.Cut(url, "?")
	return strings.HasSuffix(at, "/")
}

var _ stage.Tree = (*job)(nil)

// Walk calls fn for a file, or every file below a directory.
func (s *job) Walk(ctx context.Context, source string, fn func(stage.Entry) error) error {
	return s.files(ctx, source, func(p string, e *bb.Entry) error { return fn(Leaving(p, e)) })
}

func (s *job) files(ctx context.Context, source string, fn func(string, *bb.Entry) error) error {
	return s.b.Walk(ctx, s.cred, "stage-out", source, walk.Visitor{File: fn})
}

// Leaving is the part of an entry that a stage-out is to copy.
func Leaving(p string, e *bb.Entry) stage.Entry {
	return stage.Entry{Path: p, File: e.File, Size: e.Size, Checksum: e.Checksum, Attrs: backing.AttrsOf(e)}
}

// Open pins a file's bytes that are in memory.
func (s *job) Open(ctx context.Context, entry stage.Entry) (stage.Pinned, error) {
	return s.b.Pin(ctx, s.cred, entry.Path)
}

// pinnedLink is the target of a symbolic link that is copied out.
type pinnedLink struct {
	backing.Source
	entry stage.Entry
}

// PinLink returns the content of a symbolic link, which its entry has.
func PinLink(path string, e *bb.Entry) stage.Pinned {
	return &pinnedLink{backing.NewBytes([]byte(e.Target)), Leaving(path, e)}
}

// Entry returns the entry of the link.
func (p *pinnedLink) Entry() stage.Entry { return p.entry }

// Verify has nothing to check.
func (p *pinnedLink) Verify(context.Context) error { return nil }

// Close does nothing.
func (p *pinnedLink) Close() {}
