package s3

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// A request whose connection broke may still be carried out: it waits in a proxy, in a
// gateway or in the store, and arrives after others that were sent later and confirmed. Three
// things are done about that.
//
//   - A PUT says what it replaces (If-None-Match: *, or If-Match with the entity tag of what
//     is there), if the store compares that, which is tried out and never assumed. A late one
//     finds something else there and is refused.
//   - An upload in parts cannot be completed once it is aborted. So one that failed is aborted
//     before anything else is done under its name.
//   - What the store cannot refuse, such as a PUT of a new name that was removed again, a
//     DELETE, or any PUT to a store that compares nothing, is watched for as long as a request
//     may live. What comes back is removed again; what was overwritten, or removed, is told
//     to Options.Changed, whose bytes it is.
//
// A request lives no longer than its signature: stores refuse one that is more than 15 minutes
// old by their clock, and theirs may be 15 minutes behind ours before they refuse all.
const requestLife = 30 * time.Minute

// maxDoubts bounds the names that are watched. Beyond it, the oldest is forgotten.
const maxDoubts = 1000

// doubt is what is known of a name under which a request may still be carried out.
type doubt struct {
	until time.Time
	puts  []content // what would then be there
	// What was confirmed since: that the name is gone, or what it holds. Neither: nothing was.
	gone bool
	etag string
}

// content tells an object that a PUT makes from others.
type content struct {
	size int64
	sum  uint64
}

func (c content) is(o *backing.Object) bool {
	return o.Size == c.size && (!o.HasChecksum || o.Checksum == c.sum)
}

// finding is what a look at a name in doubt has found.
type finding uint8

const (
	asItShould finding = iota
	cameBack           // what was removed
	changed            // what was confirmed has been overwritten, or removed
)

// look decides what an object, nil if there is none, means.
func (d *doubt) look(o *backing.Object) finding {
	late := false
	for _, c := range d.puts {
		late = late || o != nil && c.is(o)
	}
	switch {
	case d.gone && late:
		return cameBack
	case d.etag != "" && o == nil, d.etag != "" && o.ETag != d.etag && late:
		return changed
	}
	return asItShould
}

// uncertain reports whether a request that failed may still be carried out. Sent says that
// all of it has been given to the network.
func uncertain(err error, sent bool) bool {
	var answer minio.ErrorResponse
	var op *net.OpError
	switch {
	case err == nil:
		return false
	case errors.As(err, &answer) && answer.StatusCode != 0:
		return answer.StatusCode >= 500 // of a gateway that has given up waiting, perhaps
	case errors.As(err, &op) && op.Op == "dial":
		return false
	}
	return sent
}

// doubts are the names of a store that are watched, and the uploads that are to be aborted.
type doubts struct {
	mu      sync.Mutex
	names   map[string]*doubt
	uploads map[string][]*upload // by key
	running bool                 // a goroutine watches
	wg      sync.WaitGroup
}

// endWatch ends the life of the store and waits until nothing watches any more. It holds the
// lock meanwhile, under which a watch looks whether the store is closed before it begins.
func (s *Store) endWatch() {
	s.doubts.mu.Lock()
	s.close()
	s.doubts.mu.Unlock()
	s.doubts.wg.Wait()
}

// doubtful notes that a request to a name may be carried out later; put is what it puts
// there, nil if it removes.
func (s *Store) doubtful(name string, put *content) {
	d := &s.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.closed.Err() != nil {
		return
	}
	one := d.names[name]
	if one == nil {
		d.forgetOldest()
		one = &doubt{}
		d.names[name] = one
	}
	one.until = time.Now().Add(s.opts.requestLife)
	if put != nil && len(one.puts) < maxDoubts {
		one.puts = append(one.puts, *put)
	}
	if !d.running {
		d.running = true
		d.wg.Go(s.watch)
	}
}

// doubtAgain goes on watching a name that a late request has changed, until it is put again.
func (s *Store) doubtAgain(name string, one *doubt) {
	d := &s.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] == nil {
		d.forgetOldest()
		d.names[name] = &doubt{until: time.Now().Add(s.opts.requestLife), puts: one.puts, gone: one.gone, etag: one.etag}
	}
}

func (d *doubts) forgetOldest() {
	if len(d.names) < maxDoubts {
		return
	}
	oldest := ""
	for name, one := range d.names {
		if oldest == "" || one.until.Before(d.names[oldest].until) {
			oldest = name
		}
	}
	delete(d.names, oldest)
}

// isLate reports whether an object is one that a request of this store has put late.
func (s *Store) isLate(name string, o *backing.Object) bool {
	s.doubts.mu.Lock()
	defer s.doubts.mu.Unlock()
	one := s.doubts.names[name]
	return one != nil && one.look(o) == changed
}

// confirmed notes what the store has said of a name after a request to it: the entity tag
// of what is there, "" if it is gone.
func (s *Store) confirmed(name, etag string) {
	s.doubts.mu.Lock()
	defer s.doubts.mu.Unlock()
	if one := s.doubts.names[name]; one != nil {
		one.gone, one.etag = etag == "", etag
	}
}

// confirmedGone is confirmed for all names below a directory; "" means all.
func (s *Store) confirmedGone(dir string) {
	s.doubts.mu.Lock()
	defer s.doubts.mu.Unlock()
	for name, one := range s.doubts.names {
		if dir == "" || isBelow(dir, name) {
			one.gone, one.etag = true, ""
		}
	}
}

// watch looks at the names in doubt, more and more seldom, until there are none.
func (s *Store) watch() {
	for pause := s.opts.watch[0]; ; pause = min(2*pause, s.opts.watch[1]) {
		select {
		case <-time.After(pause):
		case <-s.closed.Done():
			return
		}
		d := &s.doubts
		d.mu.Lock()
		todo := make(map[string]doubt, len(d.names))
		for name, one := range d.names {
			todo[name] = *one
			if time.Now().After(one.until) { // looked at once more
				delete(d.names, name)
			}
		}
		if d.running = len(todo) > 0; !d.running {
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		for name, one := range todo {
			if err := s.lookAt(s.closed, name, &one); err != nil && s.closed.Err() == nil {
				s.opts.Logger.Warn("looking after a request that may be carried out late", "object", name, "error", err)
			}
		}
	}
}

func (s *Store) lookAt(ctx context.Context, name string, one *doubt) error {
	if !one.gone && one.etag == "" {
		return nil
	}
	there, err := s.Stat(ctx, name)
	o := &there
	if bb.KindOf(err) == bb.NotFound && !isNoBucket(err) {
		o, err = nil, nil
	}
	if err != nil {
		return err
	}
	found := one.look(o)
	s.doubts.mu.Lock()
	now := s.doubts.names[name]
	stale := now != nil && (now.gone != one.gone || now.etag != one.etag) // something was confirmed meanwhile
	s.doubts.mu.Unlock()
	switch {
	case stale || found == asItShould:
		return nil
	case found == changed:
		s.doubtAgain(name, one)
		s.opts.Logger.Warn("a request that was carried out late has changed an object", "object", name)
		s.opts.Changed(name)
		return nil
	}
	s.opts.Logger.Warn("removing an object that a late request has brought back", "object", name)
	return s.Remove(ctx, name)
}

// fence aborts uploads that failed, and could not be aborted, under a key: they might still
// be completed. Below says that keys below it count too.
func (s *Store) fence(ctx context.Context, key string, below bool) error {
	d := &s.doubts
	d.mu.Lock()
	var open []*upload
	for k, uploads := range d.uploads {
		if k == key || below && strings.HasPrefix(k, key) {
			open = append(open, uploads...)
		}
	}
	d.mu.Unlock()
	for _, up := range open {
		if err := up.abort(ctx); err != nil {
			return err
		}
		d.mu.Lock()
		left := d.uploads[up.Key][:0]
		for _, other := range d.uploads[up.Key] {
			if other != up {
				left = append(left, other)
			}
		}
		if d.uploads[up.Key] = left; len(left) == 0 {
			delete(d.uploads, up.Key)
		}
		d.mu.Unlock()
	}
	return nil
}

// giveUp aborts an upload that failed, or remembers to.
func (s *Store) giveUp(ctx context.Context, up *upload) error {
	err := s.cleanup(ctx, up.abort)
	if err != nil {
		s.doubts.mu.Lock()
		s.doubts.uploads[up.Key] = append(s.doubts.uploads[up.Key], up)
		s.doubts.mu.Unlock()
	}
	return err
}

// condition is what a PUT says of the object that it replaces.
type condition struct {
	absent bool   // there is none
	etag   string // it is this one
}

func (c condition) set(opts *minio.PutObjectOptions) {
	switch {
	case c.absent:
		opts.SetMatchETagExcept("*")
	case c.etag != "":
		opts.SetMatchETag(c.etag)
	}
}

// conditions says whether a store compares what a kind of request says of the object that it
// changes.
type conditions struct {
	ignored string // what is logged if not

	mu       sync.Mutex
	tried    bool
	compares bool
}

// known tries out, once, whether the store refuses a request whose condition does not hold. One
// that ignores conditions, or does not know them, does not.
func (c *conditions) known(ctx context.Context, s *Store, try func(ctx context.Context, key string) (bool, error)) (bool, error) {
	c.mu.Lock()
	tried, compares := c.tried, c.compares
	c.mu.Unlock()
	if tried {
		return compares, nil
	}
	key := s.key(s.opts.Owner.TempName())
	compares, err := try(ctx, key)
	removed := s.cleanup(ctx, func(ctx context.Context) error { return s.remove(ctx, key, key) })
	if err != nil {
		return false, &bb.Error{Kind: bb.KindOf(err), Op: "try conditions", Path: s.url(), Err: plainReason(err)}
	}
	if removed != nil {
		s.opts.Logger.Warn("an object that was made to try the store out stays", "object", key, "error", removed)
	}
	if !compares {
		s.opts.Logger.Warn(c.ignored, "bucket", s.bucket)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried, c.compares = true, compares
	return compares, nil
}

// comparesConditions reports whether the store refuses a PUT whose condition does not hold.
func (s *Store) comparesConditions(ctx context.Context) (bool, error) {
	return s.puts.known(ctx, s, s.tryConditions)
}

func (s *Store) tryConditions(ctx context.Context, key string) (bool, error) {
	src := backing.NewBytes([]byte("forebay"))
	for i, c := range []condition{{absent: true}, {absent: true}, {etag: wrongTag}} {
		slices, _, err := backing.ReadSource(key, src, nil, 0, src.Size())
		if err != nil {
			return false, err
		}
		_, err = s.send(ctx, key, key, slices, src, nil, c)
		refused := isCondition(err)
		switch kind := bb.KindOf(err); {
		case i == 0 && err == nil, i > 0 && refused:
		case err == nil, refused, kind == bb.Unsupported, kind == bb.Invalid, kind == bb.NotFound && !isNoBucket(err):
			return false, nil
		default:
			return false, err
		}
	}
	return true, nil
}

// isCondition reports whether a PUT was refused because its condition does not hold, or
// because another one was on its way.
func isCondition(err error) bool {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return false
	}
	return answer.StatusCode == http.StatusPreconditionFailed || answer.Code == "ConditionalRequestConflict" || answer.Code == "PreconditionFailed"
}

// conditionTries is how often a PUT is sent with the condition that was right a moment before.
const conditionTries = 5

// putOver sends a PUT that replaces what is there and nothing else. opts.Replaces is the entity
// tag of what should be there, "" for nothing. With opts.Keep, nothing else is replaced.
func (s *Store) putOver(ctx context.Context, key, name string, slices [][]byte, src backing.Source, opts *backing.PutOptions) (minio.UploadInfo, error) {
	compares, err := s.comparesConditions(ctx)
	if err != nil {
		return minio.UploadInfo{}, err
	}
	if !compares {
		if err := s.checkExisting(ctx, name, opts); err != nil {
			return minio.UploadInfo{}, err
		}
		return s.sendDoubtful(ctx, key, name, slices, src, opts.Attrs, condition{})
	}
	c := condition{absent: opts.Replaces == "", etag: opts.Replaces}
	for try := 1; ; try++ {
		info, err := s.sendDoubtful(ctx, key, name, slices, src, opts.Attrs, c)
		missing := c.etag != "" && bb.KindOf(err) == bb.NotFound && !isNoBucket(err)
		if !isCondition(err) && !missing || try == conditionTries {
			return info, err
		}
		there, err := s.Stat(ctx, name)
		switch {
		case bb.KindOf(err) == bb.NotFound && !isNoBucket(err):
			c = condition{absent: true}
		case err != nil:
			return minio.UploadInfo{}, err
		case there.HasChecksum && there.Checksum == src.Checksum() && there.Size == src.Size():
			// Put by an earlier attempt whose answer was lost.
			return minio.UploadInfo{ETag: there.ETag, ChecksumCRC64NVME: encodeChecksum(there.Checksum), LastModified: there.MTime}, nil
		case !s.mayReplace(name, &there, opts):
			return minio.UploadInfo{}, backing.Foreign("put", name)
		default:
			c = condition{etag: there.ETag}
		}
	}
}

// sendDoubtful is send that notes what it does not learn the outcome of.
func (s *Store) sendDoubtful(ctx context.Context, key, name string, slices [][]byte, src backing.Source, attrs *backing.Attrs, c condition) (minio.UploadInfo, error) {
	info, err := s.send(ctx, key, name, slices, src, attrs, c)
	var lost *lostError
	if errors.As(err, &lost) {
		s.doubtful(name, &content{src.Size(), src.Checksum()})
	}
	return info, err
}

// lostError is the error of a request that may still be carried out.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }
