package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// Buckets. A buffer's bucket carries an id that is never used again, so that
// a process that still holds a destroyed buffer cannot write into its successor of
// the same name.
//
//	forebay                     buffer.NAME: a buffer's record; counter.ids: blocks of ids; namespace.id: its identity
//	forebay-NAME-ID             the namespace of one buffer
//
// A namespace that is a log is in the stream NS_forebay-NAME-ID instead. The record names it.
//
// Creating a buffer puts its record and then makes its bucket. Destroying it marks the record,
// deletes the bucket and then the record. So the record describes everything that a crash leaves.
// Without a bucket, Namespace makes it. If the record is marked, Repair continues the deletion. A
// race of Namespace with DestroyBuffer can leave a bucket without a record. Once it is old, Repair
// deletes it.
//
// A log is made before the record is put. A missing log that a record names was lost, and is not
// made again, since an empty one would stand for no names. A crash can leave an empty log without a
// record.
//
// Without a record and the mark of a destruction, Repair deletes nothing of a name, since the
// server may have lost the record.
const (
	systemBucket = "forebay"
	bufferPrefix = "buffer."
	orphanAge    = time.Hour
	maxReplicas  = 2 // nodes that hold each byte of a buffer
)

func bufferKey(name string) string { return bufferPrefix + name }

func bucketName(buffer string, id uint64) string {
	return systemBucket + "-" + buffer + "-" + strconv.FormatUint(id, 16)
}

// CreateBuffer makes a buffer with an empty root directory. Exists if there is one of that name, in
// any state.
func (m *Meta) CreateBuffer(ctx context.Context, b bb.Buffer) (bb.Buffer, error) {
	const op = "create buffer"
	if err := checkBuffer(op, &b); err != nil {
		return bb.Buffer{}, err
	}
	if b.Created.IsZero() {
		b.Created = time.Now()
	}
	if b.State == "" {
		b.State = bb.BufferActive
	}
	engine, err := m.newEngine(b.Name)
	if err != nil {
		return bb.Buffer{}, err
	}
	id, err := m.ids.Next(ctx)
	if err != nil {
		return bb.Buffer{}, err
	}
	key := bufferKey(b.Name)
	in := keptIn{id, engine}
	data, err := sealBuffer(key, &b, in)
	if err != nil {
		return bb.Buffer{}, err
	}
	unmake, err := m.makeLog(ctx, b.Name, in)
	if err != nil {
		return bb.Buffer{}, kv.Wrap(op, b.Name, err)
	}
	seq, _, err := m.system.Create(ctx, key, data, 0)
	if errors.Is(err, kv.ErrRevision) {
		unmake()
		return bb.Buffer{}, bb.E(bb.Exists, op, b.Name, "there is a buffer of that name")
	}
	if err != nil {
		return bb.Buffer{}, kv.Wrap(op, b.Name, err)
	}
	b.Revision = seq
	b.Created = b.Created.Round(0).UTC()
	if m.sharesLogs() && in.engine == EngineLog {
		m.claimNew(ctx, &b, in)
	}
	if _, err := m.Namespace(ctx, b.Name); err != nil {
		return bb.Buffer{}, err
	}
	return b, nil
}

// newEngine returns the engine of a buffer that is to be made.
func (m *Meta) newEngine(buffer string) (Engine, error) {
	var lacks error
	if m.sharesLogs() {
		lacks = m.opts.Peers.SpeakLogs()
	}
	engine, err := chooseEngine(m.opts.Engine, m.opts.servesLogs(), lacks)
	if lacks != nil && err == nil && engine != m.opts.Engine {
		m.log.Warn("a new buffer's namespace is kept in a bucket, and stays there: not every daemon serves one that is a log", "buffer", buffer, "err", lacks)
	}
	return engine, bb.Wrap("create buffer", buffer, err)
}

// chooseEngine returns the engine of a new buffer by the setting. Serves is whether this daemon serves logs, and lacks
// names another one that does not, or is nil.
func chooseEngine(setting Engine, serves bool, lacks error) (Engine, error) {
	switch setting {
	case EngineBuckets:
		return EngineBuckets, nil
	case EngineLog:
		return EngineLog, lacks
	}
	if !serves || lacks != nil {
		return EngineBuckets, nil
	}
	return EngineLog, nil
}

// makeLog makes the log of a buffer that is to be made, if it is to have one. Unmake deletes that again.
func (m *Meta) makeLog(ctx context.Context, buffer string, in keptIn) (unmake func(), err error) {
	if in.engine != EngineLog {
		return func() {}, nil
	}
	log := m.logOf(buffer, in)
	return func() {
		if err := log.Destroy(ctx); err != nil {
			m.log.Warn("the log of a buffer that was not created stays", "buffer", buffer, "err", err)
		}
	}, log.Ensure(ctx)
}

func checkBuffer(op string, b *bb.Buffer) error {
	if err := bb.CheckBufferName(b.Name); err != nil {
		return err
	}
	long := len(b.Backing) > kv.MaxText || len(b.BackingID) > 2*kv.MaxText || len(b.Job) > kv.MaxText || len(b.Codec) > kv.MaxText || len(b.NoFlush) > kv.MaxText
	if long || b.Capacity < 0 || b.FlushLimit < 0 || b.DirtyAge < 0 || !kv.Representable(b.Created) {
		return bb.E(bb.Invalid, op, b.Name, "has a value that is negative, too long or out of range")
	}
	if b.Replicas < 0 || b.Replicas > maxReplicas {
		return bb.E(bb.Invalid, op, b.Name, fmt.Sprintf("has %d replicas, 1 or %d are allowed", b.Replicas, maxReplicas))
	}
	return nil
}

// Buffer returns a buffer. NotFound if there is none.
func (m *Meta) Buffer(ctx context.Context, name string) (bb.Buffer, error) {
	b, _, err := m.buffer(ctx, "buffer", name)
	return b, err
}

// BufferGone reports whether the namespace keeps the mark of the destruction of the last buffer of
// a name. Without one it may have lost the buffer.
func (m *Meta) BufferGone(ctx context.Context, name string) (bool, error) {
	r, err := m.system.Get(ctx, bufferKey(name))
	return r.Seq != 0 && !r.Live(), kv.Wrap("buffer", name, err)
}

func (m *Meta) buffer(ctx context.Context, op, name string) (bb.Buffer, keptIn, error) {
	if err := bb.CheckBufferName(name); err != nil {
		return bb.Buffer{}, keptIn{}, err
	}
	key := bufferKey(name)
	r, err := m.system.Get(ctx, key)
	if err != nil {
		return bb.Buffer{}, keptIn{}, kv.Wrap(op, name, err)
	}
	if !r.Live() {
		return bb.Buffer{}, keptIn{}, bb.E(bb.NotFound, op, name, "there is no such buffer")
	}
	return openBuffer(key, r.Data, r.Seq)
}

// Buffers returns all buffers sorted by name. Records that cannot be decoded are
// counted (Stats.Garbage), logged and left out.
func (m *Meta) Buffers(ctx context.Context) ([]bb.Buffer, error) {
	var buffers []bb.Buffer
	err := m.eachBuffer(ctx, func(b bb.Buffer, _ keptIn) { buffers = append(buffers, b) })
	slices.SortFunc(buffers, func(a, b bb.Buffer) int { return strings.Compare(a.Name, b.Name) })
	return buffers, err
}

func (m *Meta) eachBuffer(ctx context.Context, fn func(bb.Buffer, keptIn)) error {
	found := map[string]kv.Record{} // one that changes during the scan comes twice
	err := m.system.Scan(ctx, bufferPrefix+"*", func(r *kv.Record) error {
		found[r.Key] = *r
		return nil
	})
	if err != nil {
		return kv.Wrap("buffers", "", err)
	}
	for key, r := range found {
		if !r.Live() {
			continue
		}
		b, in, err := openBuffer(key, r.Data, r.Seq)
		if err != nil {
			m.conn.Unreadable(key, err)
			continue
		}
		fn(b, in)
	}
	return nil
}

// UpdateBuffer stores changed attributes of a buffer and returns it with its new
// revision. Busy with ErrConflict if b.Revision is not the current one.
func (m *Meta) UpdateBuffer(ctx context.Context, b bb.Buffer) (bb.Buffer, error) {
	const op = "update buffer"
	if err := checkBuffer(op, &b); err != nil {
		return bb.Buffer{}, err
	}
	old, in, err := m.buffer(ctx, op, b.Name)
	if err != nil {
		return bb.Buffer{}, err
	}
	if old.Revision != b.Revision {
		return bb.Buffer{}, kv.Wrap(op, b.Name, kv.ErrRevision)
	}
	b.Created, b.Rest = old.Created, old.Rest
	return m.putBuffer(ctx, op, b, in)
}

func (m *Meta) putBuffer(ctx context.Context, op string, b bb.Buffer, in keptIn) (bb.Buffer, error) {
	key := bufferKey(b.Name)
	data, err := sealBuffer(key, &b, in)
	if err != nil {
		return bb.Buffer{}, err
	}
	seq, err := m.system.Put(ctx, key, data, b.Revision)
	if err != nil {
		return bb.Buffer{}, kv.Wrap(op, b.Name, err)
	}
	b.Revision = seq
	return b, nil
}

// DestroyBuffer deletes a buffer and its namespace, in a time that does not depend on
// their size. It may be called again after a failure, by any daemon.
func (m *Meta) DestroyBuffer(ctx context.Context, name string) error {
	const op = "destroy buffer"
	for marked := uint64(0); ; { // the id of the buffer that this call has marked
		b, in, err := m.buffer(ctx, op, name)
		if marked != 0 && (errors.Is(err, bb.NotFound) || err == nil && in.id != marked) {
			return nil // a daemon that has just started has finished it
		}
		if err != nil {
			return err
		}
		if b.State != bb.BufferDestroying {
			b.State = bb.BufferDestroying
			b, err = m.putBuffer(ctx, op, b, in)
			if errors.Is(err, kv.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
			marked = in.id
		}
		err = m.finishDestroy(ctx, b, in)
		if errors.Is(err, kv.ErrRevision) {
			continue // another daemon has finished it, or is about to
		}
		return kv.Wrap(op, name, err)
	}
}

// finishDestroy deletes the bucket or the log, and then the record, of a buffer marked for it.
func (m *Meta) finishDestroy(ctx context.Context, b bb.Buffer, in keptIn) error {
	if err := m.stored(in.engine, bucketName(b.Name, in.id)).Destroy(ctx); err != nil {
		return err
	}
	m.forget(b.Name, in)
	_, err := m.system.Remove(ctx, bufferKey(b.Name), b.Revision)
	return err
}

func (m *Meta) forget(buffer string, in keptIn) {
	s := m.spaceOf(buffer, in)
	if s == nil {
		return
	}
	s.destroyed()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.spaces[buffer] == s {
		delete(m.mu.spaces, buffer)
	}
}

// Repair finishes changes that a crash left half done: buffers being destroyed, and buckets and logs
// without a buffer. Connect calls it.
func (m *Meta) Repair(ctx context.Context) error {
	known := map[string]bool{}
	var destroying []func() error
	err := m.eachBuffer(ctx, func(b bb.Buffer, in keptIn) {
		known[bucketName(b.Name, in.id)] = true
		if b.State == bb.BufferDestroying {
			destroying = append(destroying, func() error { return m.finishDestroy(ctx, b, in) })
		}
	})
	if err != nil {
		return err
	}
	for _, finish := range destroying {
		if err := finish(); err != nil && !errors.Is(err, kv.ErrRevision) {
			return kv.Wrap("repair", "", err)
		}
	}
	if m.conn.UnreadableCount() > 0 {
		return nil // an unreadable record may be of a seeming orphan
	}
	for _, engine := range []Engine{EngineBuckets, EngineLog} {
		if err := m.deleteOrphans(ctx, engine, known); err != nil {
			return err
		}
	}
	return nil
}

// orphaned reports whether a bucket or a log belongs to no buffer any more, nor to one with a
// record that the server may have lost.
func (m *Meta) orphaned(ctx context.Context, name string, b stored) (bool, error) {
	buffer := strings.TrimPrefix(name[:strings.LastIndexByte(name, '-')], systemBucket+"-")
	key := bufferKey(buffer)
	r, err := m.system.Get(ctx, key)
	switch {
	case err != nil:
		return false, kv.Wrap("repair", name, err)
	case r.Live():
		_, in, err := openBuffer(key, r.Data, r.Seq)
		return err == nil && bucketName(buffer, in.id) != name, err
	case r.Seq != 0:
		return true, nil // it bears the mark of a destruction
	}
	unused, err := b.Unused(ctx)
	if err == nil && !unused {
		m.log.Error("a namespace is kept of which no buffer is recorded, nor its destruction: the server may have lost the record", "name", name,
			"remedy", "put a copy of the namespace server's folder back")
	}
	return unused, err
}

// deleteOrphans deletes buckets, or logs, without a record that are too old to be of a buffer
// that is just being made.
func (m *Meta) deleteOrphans(ctx context.Context, engine Engine, known map[string]bool) error {
	made, err := m.allStored(ctx, engine)
	if err != nil {
		m.log.Warn("the search for buckets without a buffer failed", "err", err)
		return nil
	}
	for _, name := range made {
		if known[name] {
			continue
		}
		b := m.stored(engine, name)
		created, found, err := b.Created(ctx)
		if err != nil {
			m.log.Warn("the search for buckets without a buffer failed", "err", err)
			return nil
		}
		if !found || time.Since(created) <= m.orphanAge {
			continue
		}
		// A bucket's record was put before it was made, and a log has no other user. So the record can be
		// searched now, at any age by the clocks.
		if is, err := m.orphaned(ctx, name, b); err != nil {
			return err
		} else if !is {
			continue
		}
		if engine == EngineLog { // the record that names another one may be newer than the server's last sync
			if err := m.sync(ctx); err != nil {
				return kv.Wrap("repair", name, err)
			}
		}
		m.log.Warn("deleting a namespace that no buffer has", "name", name, "engine", engine)
		if err := b.Destroy(ctx); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
	}
	return nil
}

// BufferChange is the present state of a buffer.
type BufferChange struct {
	Name   string
	Buffer *bb.Buffer // nil: it has been destroyed
}

// WatchBuffers calls fn with every existing buffer, then with those of known that do not exist, and
// from then on with each that was made, changed or destroyed by any daemon, until ctx ends. It
// returns the cause. fn runs on the caller's goroutine and gets the revisions of a buffer in their
// order, but not every one of them.
func (m *Meta) WatchBuffers(ctx context.Context, known []string, fn func(BufferChange)) error {
	exist := map[string]bool{}
	listed := func() bool {
		for _, name := range known {
			if !exist[name] {
				fn(BufferChange{Name: name})
			}
		}
		known = nil
		return false
	}
	err := m.system.Watch(ctx, bufferPrefix+"*", func(r *kv.Record) {
		name := r.Key[len(bufferPrefix):]
		if !r.Live() {
			if exist[name] {
				delete(exist, name)
				fn(BufferChange{Name: name})
			}
			return
		}
		b, _, err := openBuffer(r.Key, r.Data, r.Seq)
		if err != nil {
			m.conn.Unreadable(r.Key, err)
			return
		}
		exist[name] = true
		fn(BufferChange{name, &b})
	}, listed)
	return kv.Wrap("watch buffers", "", err)
}
