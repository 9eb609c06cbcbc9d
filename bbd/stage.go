package bbd

import (
	"context"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/store"
	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// defaultParallel is how many pieces of a stage are copied at a time.
const defaultParallel = 4

// stageRange is how much of a large file one worker copies at a time, in bytes.
const stageRange = 32 << 20

// progress collects what long work has done and tells the client from time to time.
type progress struct {
	mu   sync.Mutex
	now  wire.Progress
	tell func(*wire.Progress) error
	last time.Time
}

// tellEvery is how often progress is sent.
const tellEvery = 200 * time.Millisecond

func newProgress(r *request) *progress {
	return &progress{tell: func(p *wire.Progress) error { return r.more(p, nil) }}
}

// update changes the figures and tells the client when it is time to.
func (p *progress) update(change func(*wire.Progress)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
	if time.Since(p.last) < tellEvery {
		return nil
	}
	p.last = time.Now()
	err := p.tell(proto.CloneOf(&p.now))
	p.now.Names, p.now.Failed = nil, nil // each is told once
	return err
}

// done returns the last message.
func (p *progress) done() *wire.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Done = true
	return proto.CloneOf(&p.now)
}

// maxNamed bounds the names in one message.
const maxNamed = 1000

func (p *progress) failed(name string, bytes int64, err error) error {
	return p.update(func(m *wire.Progress) {
		m.FailedTotal++
		if len(m.Failed) < maxNamed {
			m.Failed = append(m.Failed, &wire.Failure{Path: name, Kind: uint32(bb.KindOf(err)), Reason: err.Error(), Bytes: bytes})
		}
	})
}

func (p *progress) skipped(name string, bytes int64) error {
	return p.update(func(m *wire.Progress) { m.FilesSkipped++; m.FilesDone++; m.BytesDone += bytes })
}

func (p *progress) copied(n int64) error {
	return p.update(func(m *wire.Progress) { m.BytesDone += n })
}

// stage is one stage-in or stage-out.
type stage struct {
	b        *buffer
	cred     cred
	remote   backing.Store
	url      string
	path     string // in the buffer, clean
	dryRun   bool
	parallel int
	progress *progress
}

func (r *request) newStage(op string, m *wire.Stage) (*stage, string, error) {
	b, err := r.s.buffer(r.ctx, op, m.Buffer)
	if err != nil {
		return nil, "", err
	}
	p, err := bb.CleanPath(m.Path)
	if err != nil {
		return nil, "", bb.Wrap(op, b.address(""), err)
	}
	where, err := bb.ParseBacking(m.Url)
	if err != nil {
		return nil, "", bb.Wrap(op, m.Url, err)
	}
	root, name := splitURL(where, m.Url)
	if where.Scheme == "file" {
		if r.s.d.inside(where.Path) {
			return nil, "", bb.E(bb.Invalid, op, m.Url, "lies in the daemon's own folder")
		}
		if err := r.s.d.mayStage(r.s.cred, where.Path, op == "stage-out"); err != nil {
			return nil, "", bb.Wrap(op, m.Url, err)
		}
	}
	remote, err := r.s.d.openURL(r.ctx, root, b.spec())
	if err != nil {
		return nil, "", bb.Wrap(op, m.Url, err)
	}
	parallel := int(m.Parallel)
	if parallel <= 0 || parallel > 64 {
		parallel = defaultParallel
	}
	return &stage{
		b: b, cred: r.s.cred, remote: remote, url: m.Url, path: p, dryRun: m.DryRun, parallel: parallel, progress: newProgress(r),
	}, name, nil
}

// splitURL takes the last name off a URL, which may be a file's or a directory's.
func splitURL(where bb.Backing, url string) (root, name string) {
	query := ""
	if i := strings.IndexByte(url, '?'); i >= 0 {
		query = url[i:]
	}
	if where.Scheme == "file" {
		dir, name := path.Split(where.Path)
		if dir == "/" {
			return "file://" + where.Path, ""
		}
		return "file://" + strings.TrimSuffix(dir, "/"), name
	}
	dir, name := path.Split(where.Prefix)
	return "s3://" + where.Bucket + "/" + strings.TrimSuffix(dir, "/") + query, name
}

// stageIn copies one object, or all below a prefix, into the buffer.
func (r *request) stageIn(m *wire.Stage) (proto.Message, error) {
	s, name, err := r.newStage("stage-in", m)
	if err != nil {
		return nil, err
	}
	defer s.remote.Close()
	if err := s.in(r.ctx, name); err != nil {
		return nil, bb.Wrap("stage-in", m.Url, err)
	}
	return s.progress.done(), nil
}

// pair is an object and where it goes.
type pair struct {
	object backing.Object
	target string // in the buffer
	codec  string
}

func (s *stage) in(ctx context.Context, name string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.parallel)
	found, made := false, map[string]bool{}
	visit := func(p pair) error {
		found = true
		s.progress.update(func(m *wire.Progress) { m.FilesTotal++; m.BytesTotal += p.object.Size })
		if s.dryRun {
			return s.progress.update(func(m *wire.Progress) {
				m.Names = append(m.Names, p.object.Name+" → "+s.b.address(p.target))
			})
		}
		if err := s.makeDirs(ctx, path.Dir(p.target), made); err != nil {
			return err
		}
		group.Go(func() error { return s.inOne(ctx, p) })
		return ctx.Err()
	}
	err := s.objects(ctx, name, visit)
	if waited := group.Wait(); waited != nil {
		err = waited
	}
	if err == nil && !found {
		err = bb.E(bb.NotFound, "stage-in", s.url, "there is nothing").WithRemedy("look at the URL; a prefix needs objects below it")
	}
	return err
}

// objects calls visit for the object called name, or for all below it.
func (s *stage) objects(ctx context.Context, name string, visit func(pair) error) error {
	if name != "" {
		object, err := s.remote.Stat(ctx, name)
		if err == nil {
			target := s.path
			if e, err := s.b.lookup(ctx, s.cred, "stage-in", s.path); s.path == "" || err == nil && e.IsDir() {
				target = strings.TrimPrefix(s.path+"/"+path.Base(name), "/")
			}
			return visit(s.pair(object, target))
		}
		if bb.KindOf(err) != bb.NotFound && bb.KindOf(err) != bb.IsDirectory {
			return err
		}
		name += "/"
	}
	return s.remote.List(ctx, name, func(object backing.Object) error {
		below := strings.TrimPrefix(object.Name, name)
		return visit(s.pair(object, strings.TrimPrefix(s.path+"/"+below, "/")))
	})
}

// pair takes the codec's suffix off what a buffer with a codec gets.
func (s *stage) pair(object backing.Object, target string) pair {
	c := s.b.spec().Codec
	if suffix := codec.Suffix(c); c != "" && strings.HasSuffix(target, suffix) {
		return pair{object, strings.TrimSuffix(target, suffix), c}
	}
	return pair{object, target, ""}
}

func (s *stage) makeDirs(ctx context.Context, dir string, made map[string]bool) error {
	if dir == "." || made[dir] {
		return nil
	}
	if err := s.makeDirs(ctx, path.Dir(dir), made); err != nil {
		return err
	}
	_, err := s.b.mkdir(ctx, s.cred, dir, 0o755)
	if err != nil && bb.KindOf(err) != bb.Exists {
		return err
	}
	made[dir] = true
	return nil
}

func (s *stage) inOne(ctx context.Context, p pair) error {
	err := s.copyIn(ctx, p)
	if err == nil {
		return s.progress.update(func(m *wire.Progress) { m.FilesDone++ })
	}
	if err == errEqual {
		return s.progress.skipped(p.target, p.object.Size)
	}
	if ctx.Err() != nil {
		return err
	}
	return s.progress.failed(p.target, p.object.Size, err)
}

var errEqual = bb.E(bb.Exists, "stage", "", "already there and equal")

// copyIn makes one file of an object. One that comes from where the buffer flushes it
// to is clean from the start.
func (s *stage) copyIn(ctx context.Context, p pair) error {
	if s.equal(ctx, p) {
		return errEqual
	}
	f, err := s.b.openWrite(ctx, s.cred, openOptions{path: p.target, create: true, truncate: true, mode: 0o644})
	if err != nil {
		return err
	}
	clean := s.isOwn(p)
	var size int64
	if p.codec == "" {
		size, err = p.object.Size, s.copyRanges(ctx, f, p)
	} else {
		size, err = s.copyStream(ctx, f, p)
	}
	if err == nil {
		err = s.complete(ctx, f, size)
	}
	if err != nil {
		f.cancel(ctx)
		return err
	}
	if clean {
		f.setFlushed(bb.Flushed{
			ETag: p.object.ETag, Size: p.object.Size, Checksum: p.object.Checksum, Codec: p.codec,
			At: time.Now(), By: s.b.d.cfg.Node,
		})
	}
	_, err = f.close(ctx, nil, p.object.MTime)
	return err
}

// complete checks that what came is what was announced.
func (s *stage) complete(ctx context.Context, f *openFile, size int64) error {
	if size == 0 {
		_, err := f.stage(nil)
		return err
	}
	if got := f.size(); got != size {
		return bb.E(bb.Checksum, "stage-in", f.path, "fewer bytes came than the store announced")
	}
	return ctx.Err()
}

// equal reports whether the file is there already: as flushed to this very object, or
// of the same size and time.
func (s *stage) equal(ctx context.Context, p pair) bool {
	e, err := s.b.lookup(ctx, s.cred, "stage-in", p.target)
	if err != nil || e.Type != bb.TypeFile || e.Open || e.Lost {
		return false
	}
	if e.Flushed.Generation == e.Generation && e.Flushed.ETag != "" && s.isOwn(p) {
		return e.Flushed.ETag == p.object.ETag
	}
	if p.object.HasChecksum && p.codec == "" {
		return e.Size == p.object.Size && e.Checksum == p.object.Checksum
	}
	return p.codec == "" && e.Size == p.object.Size && !p.object.MTime.IsZero() && e.MTime.Equal(p.object.MTime)
}

// isOwn reports whether an object is the one that the file's flush would write.
func (s *stage) isOwn(p pair) bool {
	spec := s.b.spec()
	return spec.Backing != "" && spec.Codec == p.codec && objectURL(s.url, p.object.Name) == objectURL(spec.Backing, "")+"/"+p.target+codec.Suffix(p.codec)
}

// objectURL is what tells an object from every other: the URL of its root with its name.
func objectURL(url, name string) string {
	where, err := bb.ParseBacking(url)
	if err != nil {
		return url + "/" + name
	}
	if where.Scheme == "file" {
		if name != "" {
			return path.Dir(where.Path) + "/" + name
		}
		return where.Path
	}
	if name != "" {
		return "s3://" + where.Bucket + "/" + where.Query.Get("endpoint") + "/" + path.Join(path.Dir(where.Prefix), name)
	}
	return "s3://" + where.Bucket + "/" + where.Query.Get("endpoint") + "/" + where.Prefix
}

// copyRanges copies an object in ranges, several at a time.
func (s *stage) copyRanges(ctx context.Context, f *openFile, p pair) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.parallel)
	for offset := int64(0); offset < p.object.Size; offset += stageRange {
		n := min(stageRange, p.object.Size-offset)
		group.Go(func() error {
			from, err := s.remote.Get(ctx, p.object.Name, offset, n)
			if err != nil {
				return err
			}
			defer from.Close()
			_, err = s.pour(ctx, f, from, offset, n)
			return err
		})
	}
	return group.Wait()
}

// copyStream copies a compressed object, whose length is known when it has ended.
func (s *stage) copyStream(ctx context.Context, f *openFile, p pair) (int64, error) {
	from, err := s.remote.Get(ctx, p.object.Name, 0, -1)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	plain, err := codec.NewReader(p.codec, from)
	if err != nil {
		return 0, err
	}
	defer plain.Close()
	return s.pour(ctx, f, plain, 0, bb.MaxFileSize)
}

// pour writes a stream of up to n bytes into segments, committing extent by extent.
func (s *stage) pour(ctx context.Context, f *openFile, from io.Reader, offset, n int64) (int64, error) {
	w := s.b.writer(s.cred.uid)
	var done int64
	for done < n {
		room, err := w.reserve(ctx, min(n-done, maxExtent))
		if err != nil {
			return done, err
		}
		got, err := io.ReadFull(from, room.mem)
		if got > 0 {
			_, stageErr := f.stage([]store.NewExtent{{
				Lease: room.lease, SegmentOffset: room.offset, FileOffset: offset + done,
				Length: int64(got), Checksum: checksum.Sum(room.mem[:got]),
			}})
			if err == nil || stageErr != nil {
				err = stageErr
			}
		}
		w.done()
		done += int64(got)
		s.progress.copied(int64(got))
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
