package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/bbd/store"
	"forebay/bbd/transfer"
	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// maxParallel bounds the pieces that a client may have copied at a time.
const maxParallel = 64

// job is one stage-in or stage-out, from the view of the buffer.
type job struct {
	of     *Service
	b      Buffer
	cred   access.Caller
	remote backing.Store
	url    string
	root   string   // the URL of the remote store: url without its last name
	direct bool     // no job, in a cluster; dirty files elsewhere cannot be replaced
	there  sync.Map // different files that are there; path to nothing
	made   sync.Map // directories that are there; path to nothing
}

// request checks a request and opens its store. The name is that of the file or
// directory below the store's root.
func (v *Service) request(ctx context.Context, r call.Request, op string, m *wire.Stage) (s *job, target, name string, err error) {
	b, err := v.o.Enter(ctx, r, op, m.Buffer)
	if err != nil {
		return nil, "", "", err
	}
	if m.Parallel > maxParallel {
		return nil, "", "", bb.E(bb.Invalid, op, fmt.Sprint(m.Parallel), fmt.Sprintf("at most %d pieces are copied at a time", maxParallel))
	}
	return v.open(ctx, b, *r.Caller(), op, m.Path, m.Url)
}

func (v *Service) open(ctx context.Context, b Buffer, c access.Caller, op, at, url string) (s *job, target, name string, err error) {
	if target, err = bb.CleanPath(at); err != nil {
		return nil, "", "", bb.Wrap(op, address(b, ""), err)
	}
	where, err := bb.ParseBacking(url)
	if err != nil {
		return nil, "", "", bb.Wrap(op, url, err)
	}
	root, name := where.Split()
	if where.IsDirectory() && v.o.Inside(where.Path) {
		return nil, "", "", bb.E(bb.Invalid, op, url, "lies in the daemon's own folder")
	}
	remote, err := v.o.Open(ctx, c, root, b.Spec())
	if err != nil {
		return nil, "", "", bb.Wrap(op, url, err)
	}
	return &job{of: v, b: b, cred: c, remote: remote, url: url, root: root}, target, name, nil
}

// options reports the progress of a stage to the client.
func stageOptions(m *wire.Stage, p *transfer.Progress) stage.Options {
	return stage.Options{Parallel: int(m.Parallel), DryRun: m.DryRun, Progress: func(now stage.Progress) {
		p.Update(func(w *wire.Progress) { setProgress(w, &now) })
	}}
}

func setProgress(w *wire.Progress, p *stage.Progress) {
	w.FilesTotal, w.FilesDone, w.FilesSkipped = p.Files, p.FilesDone-p.Failed, p.Skipped
	w.BytesTotal, w.BytesDone, w.BytesNotCopied, w.FailedTotal = p.Bytes, p.BytesDone, p.BytesNotCopied, p.Failed
}

// reported is the last message of a stage.
func reported(p *transfer.Progress, report *stage.Report, err error) (proto.Message, error) {
	if err != nil && report.Failed == 0 {
		return nil, err
	}
	m := p.Done()
	setProgress(m, &report.Progress)
	for _, name := range report.Names[:min(len(report.Names), transfer.MaxNamed)] {
		m.Names = append(m.Names, strings.ToValidUTF8(name, "\uFFFD"))
	}
	for _, f := range report.Failures[:min(len(report.Failures), transfer.MaxNamed)] {
		m.Failed = append(m.Failed, wire.Failed(f.Name, f.Bytes, f.Err))
	}
	return m, nil
}

// In copies one object, or all below a prefix, into the buffer.
func (v *Service) In(ctx context.Context, r call.Request, m *wire.Stage) (proto.Message, error) {
	s, target, name, err := v.request(ctx, r, "stage-in", m)
	if err != nil {
		return nil, err
	}
	defer s.remote.Close()
	if v.o.Transfers.Available() && !m.DryRun {
		return v.run(ctx, r, ops.StageIn, s, target, name, m)
	}
	s.direct = v.o.Cluster != nil
	p := transfer.ProgressTo(r)
	report, err := s.stageInHere(ctx, name, s.inTarget(ctx, target, name), stage.InOptions{Options: stageOptions(m, p), Codec: s.b.Spec().Codec})
	answer, err := reported(p, &report, err)
	return answer, bb.Wrap("stage-in", m.Url, err)
}

// inTarget is the path that a name is staged in to. A file goes into a directory, as with cp. A link to a directory
// stands for the directory, as in stage.In.
func (s *job) inTarget(ctx context.Context, target, name string) string {
	if e, err := s.b.Lookup(ctx, s.cred, "stage-in", target); name != "" && err == nil && e.IsDir() {
		o, err := s.remote.Stat(ctx, name)
		isDir := false
		if err == nil && o.IsLink() {
			isDir, err = stage.IsDirectory(ctx, s.remote, name)
		}
		if err == nil && !isDir {
			return path.Join(target, path.Base(name))
		}
	}
	return target
}

var _ stage.Sink = (*job)(nil)

// Same reports whether a file is there already, as flushed to this very object, or of the same size
// and checksum, or, if the store keeps no checksums, time.
func (s *job) Same(ctx context.Context, target string, o *backing.Object, codecName string) (bool, error) {
	e, err := s.b.Lookup(ctx, s.cred, "stage-in", target)
	if err != nil {
		if bb.KindOf(err) == bb.NotFound {
			err = nil
		}
		return false, err
	}
	same := s.same(&e, target, *o, codecName)
	if !same && !o.HasMode && !o.HasChecksum && e.Size == o.Size && codecName == codec.None {
		// A listing of S3 does not have all attributes that the store has.
		if now, err := s.remote.Stat(ctx, o.Name); err == nil && now.ETag == o.ETag {
			*o = now
			same = s.same(&e, target, now, codecName)
		}
	}
	if !same {
		s.there.Store(target, nil)
	}
	return same, nil
}

func (s *job) same(e *bb.Entry, target string, o backing.Object, codecName string) bool {
	switch {
	case e.IsDir() || e.Open || e.Lost || e.Type != bb.TypeFile && e.Type != bb.TypeSymlink:
		return false
	case (e.Type == bb.TypeSymlink) != o.IsLink():
		return false
	case s.of.o.Cluster != nil && s.atHand(e, target, nil) != nil:
		return false // Create returns where it is
	case e.Flushed.Generation == e.Generation && e.Flushed.ETag != "" && s.isOwn(target, o, codecName):
		return e.Flushed.ETag == o.ETag
	case codecName != codec.None:
		return false
	case o.HasChecksum:
		return e.Size == o.Size && e.Checksum == o.Checksum
	}
	return e.Size == o.Size && !o.MTime.IsZero() && e.MTime.Equal(o.MTime)
}

// isOwn reports whether an object is the one that the file's flush would write.
func (s *job) isOwn(target string, o backing.Object, codecName string) bool {
	spec := s.b.Spec()
	own, err := bb.ParseBacking(spec.Backing)
	if err != nil || spec.Codec != codecName && !o.IsLink() {
		return false
	}
	from, err := bb.ParseBacking(s.url)
	return err == nil && from.Object(o.Name) == own.Below(target+codec.Suffix(codecName))
}

// Create begins a file, and the directories above it.
func (s *job) Create(ctx context.Context, target string, o backing.Object) (stage.File, error) {
	if err := s.makeDirs(ctx, path.Dir(target)); err != nil {
		return nil, err
	}
	mode := fs.FileMode(0o644)
	if o.HasMode {
		mode = o.Mode
	}
	_, there := s.there.LoadAndDelete(target)
	f, err := s.b.Create(ctx, s.cred, target, mode)
	if elsewhere := NotOwner(nil); errors.As(err, &elsewhere) && !s.of.o.Cluster.Reachable(elsewhere.Owner()) {
		return nil, cluster.Away("stage-in", s.address(target), elsewhere.Owner())
	} else if elsewhere != nil && s.direct {
		return nil, bb.E(bb.Busy, "stage-in", s.address(target), "it is dirty at its owner, node "+string(elsewhere.Owner())+", and only a job can replace it there").
			WithRemedy("drain the buffer first, or upgrade the daemons that do not support jobs: see bbctl nodes")
	}
	if err != nil {
		return nil, err
	}
	return &stagedFile{s: s, f: f, target: target, object: o, there: there}, nil
}

// Link makes a symbolic link, and the directories above it. One that comes from where the buffer flushes it to is clean
// from the start.
func (s *job) Link(ctx context.Context, at string, o backing.Object, target string) error {
	if err := s.makeDirs(ctx, path.Dir(at)); err != nil {
		return err
	}
	s.there.Delete(at)
	var flushed bb.Flushed
	if s.isOwn(at, o, codec.None) {
		flushed = bb.Flushed{ETag: o.ETag, Size: o.Size, Checksum: checksum.Sum([]byte(target)), At: time.Now(), By: s.of.o.Node}
	}
	return s.b.Link(ctx, s.cred, at, target, o.MTime, flushed)
}

func (s *job) makeDirs(ctx context.Context, dir string) error {
	if _, ok := s.made.Load(dir); ok || dir == "." {
		return nil
	}
	if err := s.makeDirs(ctx, path.Dir(dir)); err != nil {
		return err
	}
	err := s.b.MakeDir(ctx, s.cred, dir, 0o755)
	if err != nil && bb.KindOf(err) != bb.Exists {
		return err
	}
	s.made.Store(dir, nil)
	return nil
}

// stagedFile is a file whose bytes come from a store. One that comes from where the
// buffer flushes it to is clean from the start.
type stagedFile struct {
	s      *job
	f      File
	target string
	object backing.Object
	there  bool // the name had a file, whose mode a new generation keeps
	ended  bool

	described bool // the object's mode became known after the file was begun
}

// Fill writes a stream of up to n bytes (all of it, if negative) into segments.
func (f *stagedFile) Fill(ctx context.Context, offset, n int64, from io.Reader) (int64, error) {
	if n < 0 {
		n = bb.MaxFileSize
	}
	w := f.s.b.Segments(ctx, f.s.cred.UID, f.target)
	var done int64
	for done < n {
		got, err := f.fillOne(ctx, w, offset+done, min(n-done, alloc.MaxExtent), from)
		done += got
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// fillOne reads straight into a segment and records the bytes that came as an extent.
func (f *stagedFile) fillOne(ctx context.Context, w *alloc.Writer, offset, n int64, from io.Reader) (int64, error) {
	room, err := w.Reserve(ctx, n)
	if err != nil {
		return 0, err
	}
	defer w.Done(room)
	got, sum, err := room.Fill(from)
	if got == 0 {
		return 0, err
	}
	stageErr := f.f.Stage(ctx, []store.NewExtent{{
		Lease: room.Lease, SegmentOffset: room.Offset, FileOffset: offset, Length: got, Checksum: sum,
	}})
	if stageErr != nil {
		err = stageErr
	}
	return got, err
}

// Publish shows the file, if all of it came.
func (f *stagedFile) Publish(ctx context.Context, size int64) error {
	if err := f.f.Stage(ctx, nil); err != nil {
		return err
	}
	if got := f.f.StagedSize(); got != size {
		return bb.E(bb.Checksum, "stage-in", f.s.address(f.target), fmt.Sprintf("%d bytes came, the store announced %d", got, size))
	}
	codecName := f.codec()
	if f.s.isOwn(f.target, f.object, codecName) {
		f.f.SetFlushed(bb.Flushed{
			ETag: f.object.ETag, Size: f.object.Size, Checksum: f.object.Checksum, Codec: codecName,
			At: time.Now(), By: f.s.of.o.Node,
		})
	}
	f.f.AddXattrs(f.object.Xattrs)
	return f.s.b.Change(ctx, "stage-in", func() error {
		err := f.f.Close(ctx, f.object.MTime)
		f.ended = err == nil
		if err == nil && (f.there || f.described) {
			err = f.s.keepMode(ctx, f.target, f.object)
		}
		return err
	})
}

// Describe sets the attributes that were missing in a listing.
func (f *stagedFile) Describe(o backing.Object) {
	if o.ETag != f.object.ETag {
		return
	}
	f.object.Xattrs = o.Xattrs
	if f.object.HasMode {
		return
	}
	f.object.Mode, f.object.HasMode, f.object.MTime = o.Mode, o.HasMode, o.MTime
	f.described = o.HasMode
}

// codec returns the codec that was undone on the way in.
func (f *stagedFile) codec() string {
	if c := f.s.b.Spec().Codec; strings.HasSuffix(f.object.Name, path.Base(f.target)+codec.Suffix(c)) {
		return c
	}
	return codec.None
}

// Abort abandons the file, unless it was published.
func (f *stagedFile) Abort() {
	if !f.ended {
		f.ended = true
		f.f.Cancel()
	}
}
