package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/retry"
)

const (
	hdrExpected        = "Nats-Expected-Last-Subject-Sequence"
	hdrExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	hdrSequence        = "Nats-Sequence"
	hdrSubject         = "Nats-Subject"
	hdrOperation       = "KV-Operation"
	hdrNonce           = "Forebay-Nonce" // distinguishes a change from an equal one
	hdrGone            = "Forebay-Gone"  // on a deletion: the id of the file that went with it
)

// Bucket is one key-value bucket: a stream KV_name with one message per subject $KV.name.KEY. Tools
// for NATS's key-value buckets can read it.
//
// A value's revision is its message's sequence. A deleted key has a message without
// data until that expires, then none.
type Bucket struct {
	c        *conn.Conn
	replicas int           // copies that it gets when it is made
	copies   atomic.Int32  // that it has, once that was read
	age      time.Duration // see bucketOptions
	name     string
	subject  string              // prefix of its subjects
	get1     string              // prefix of direct gets
	batches  *semaphore.Weighted // places of those under way
	barriers barriers
	gone     func(context.Context) (bool, error)
	absent   bool
}

// Record is one value of a bucket.
type Record struct {
	Key  string
	Seq  uint64    // 0: the key does not exist
	Data []byte    // nil: it was deleted
	By   string    // the batch id or the nonce of the change that wrote it
	Gone bb.FileID // the file that this deletion removed, or whose name its rename took; 0: none
}

// Live reports whether the key exists.
func (r *Record) Live() bool { return len(r.Data) > 0 }

// BucketOptions are the special features of a bucket.
type BucketOptions struct {
	Age time.Duration // of its oldest record; 0: any
	// Gone, if not nil, confirms that the bucket is gone. A server may report that before the
	// bucket has reached it.
	Gone func(context.Context) (bool, error)
	// Absent: if the server does not find a bucket, no call of Gone is needed.
	Absent bool
}

// NeverGone is for buckets that are never deleted.
func NeverGone(context.Context) (bool, error) { return false, nil }

// New returns the bucket of a name, which need not exist.
func New(c *conn.Conn, name string, o BucketOptions) *Bucket {
	return &Bucket{
		c: c, replicas: c.Replicas(), name: name, age: o.Age, gone: o.Gone, absent: o.Absent,
		subject: "$KV." + name + ".",
		get1:    "$JS.API.DIRECT.GET.KV_" + name + ".$KV." + name + ".",
		batches: semaphore.NewWeighted(batchesAtOnce),
	}
}

// Name returns the bucket's name.
func (b *Bucket) Name() string { return b.name }

// Logger returns the log of the connection.
func (b *Bucket) Logger() *slog.Logger { return b.c.Logger() }

// Unreadable counts and logs a record that cannot be decoded. A nil error is none.
func (b *Bucket) Unreadable(key string, err error) { b.c.Unreadable(key, err) }

// Unavailable is the error of an operation whose context ended while the server did not
// answer: Cancelled if it was cancelled, else Unavailable.
func (b *Bucket) Unavailable(ctx context.Context, op string, cause error) error {
	return b.c.Unavailable(ctx, op, cause)
}

// Reconnects counts how often the connection came back.
func (b *Bucket) Reconnects() uint64 { return b.c.Status().Reconnects }

// Ensure makes the bucket if it is missing. If it has fewer copies than it should, Ensure adds
// some.
func (b *Bucket) Ensure(ctx context.Context) error {
	err := b.manage(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "KV_" + b.name, Subjects: []string{b.subject + ">"}, Storage: jetstream.FileStorage,
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, AllowDirect: true,
			AllowAtomicPublish: true, Replicas: b.replicas, MaxMsgs: -1, MaxBytes: -1, MaxAge: b.age,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return b.find(ctx) // made by another version, and used as it is
		}
		if err == nil {
			b.copies.Store(int32(s.CachedInfo().Config.Replicas))
		}
		return err
	})
	if err == nil && int(b.copies.Load()) < b.replicas {
		err = b.raise(ctx)
	}
	return err
}

// find reads the number of the bucket's copies.
func (b *Bucket) find(ctx context.Context) error {
	s, err := b.c.JetStream().Stream(ctx, "KV_"+b.name)
	if err == nil {
		b.copies.Store(int32(s.CachedInfo().Config.Replicas))
	}
	return err
}

// raise adds the missing copies of a bucket that was made for fewer servers.
func (b *Bucket) raise(ctx context.Context) error {
	return b.manage(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, "KV_"+b.name)
		if err != nil {
			return err
		}
		cfg := s.CachedInfo().Config
		if cfg.Replicas >= b.replicas {
			return nil
		}
		cfg.Replicas = b.replicas
		_, err = js.UpdateStream(ctx, cfg)
		return err
	})
}

// Exists reports whether the server has the bucket.
func (b *Bucket) Exists(ctx context.Context) (bool, error) {
	found := true
	err := b.manage(ctx, func(ctx context.Context, _ jetstream.JetStream) error {
		err := b.find(ctx)
		if found = err == nil; errors.Is(err, jetstream.ErrStreamNotFound) {
			err = nil
		}
		return err
	})
	return found, err
}

// Destroy deletes the bucket with all that it holds. It may be gone already.
func (b *Bucket) Destroy(ctx context.Context) error {
	return b.manage(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		err := js.DeleteStream(ctx, "KV_"+b.name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}

// Created returns when the bucket was made. It does not try again.
func (b *Bucket) Created(ctx context.Context) (at time.Time, found bool, err error) {
	s, err := b.c.JetStream().Stream(ctx, "KV_"+b.name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return time.Time{}, false, nil
	case err != nil:
		return time.Time{}, false, err
	}
	return s.CachedInfo().Created, true, nil
}

// Names returns the names of the buckets that begin with a prefix. It does not try again.
func Names(ctx context.Context, c *conn.Conn, prefix string) ([]string, error) {
	var found []string
	// Names alone. For more the server sends a request to the leader of each stream, and waits for
	// 4 s if one has none.
	list := c.JetStream().StreamNames(ctx, jetstream.WithStreamListSubject("$KV.>"))
	for stream := range list.Name() {
		if name, ok := strings.CutPrefix(stream, "KV_"); ok && strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, err
	}
	return found, nil
}

func (b *Bucket) manage(ctx context.Context, do func(context.Context, jetstream.JetStream) error) error {
	return b.c.Manage(ctx, "bucket", b.name, do)
}

// Get returns the record under a key, never an older one than was acknowledged to any client before
// the call (see barriers).
func (b *Bucket) Get(ctx context.Context, key string) (Record, error) {
	if b.Replicated() {
		records, _, err := b.Newest(ctx, key)
		if err != nil || len(records) == 0 {
			return Record{Key: key}, err
		}
		return records[0], nil
	}
	for {
		r, err := b.getDirect(ctx, key)
		if err == nil {
			return r, nil
		}
		if err := b.retry(ctx, err); err != nil {
			return Record{}, err
		}
	}
}

// retry returns nil if a request that failed with err should be sent again.
func (b *Bucket) retry(ctx context.Context, err error) error {
	switch {
	case bb.KindOf(err) == bb.NoSpace: // no try has an answer until room is freed
		return err
	case ctx.Err() != nil && errors.Is(err, ErrUncertain):
		return b.c.Unavailable(ctx, "namespace server", err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, ErrUncertain):
		// Either the bucket is gone or the server is not ready. A request while a server
		// drops the bucket is not answered, and may keep its subscription for good.
		b.suspected(err)
		switch found, ferr := b.there(ctx); {
		case ferr != nil:
			return ferr
		case !found && (b.gone == nil || b.absent):
			return ErrNoBucket
		case !found || b.gone != nil && errors.Is(err, ErrUncertain):
			// A stream that was made again while the server dropped it is found, and never answers.
			if gone, err := b.gone(ctx); err != nil {
				return err
			} else if gone {
				return ErrNoBucket
			}
		}
		if errors.Is(err, nats.ErrNoResponders) {
			retry.Pause(ctx, 5)
		}
		return b.c.Again(ctx)
	case !errors.Is(err, ErrNoServer):
		return err
	case ctx.Err() != nil:
		return b.c.Unavailable(ctx, "namespace server", err)
	}
	return b.c.Again(ctx)
}

// existsWithin bounds the question whether a bucket without a leader is there, since nothing answers it while a leader
// is elected.
const existsWithin = 500 * time.Millisecond

// there is Exists of a bucket that does not serve a request. With copies, no answer soon counts as yes. The next try
// finds the next leader.
func (b *Bucket) there(ctx context.Context) (bool, error) {
	if !b.Replicated() {
		return b.Exists(ctx)
	}
	once, cancel := context.WithTimeout(ctx, existsWithin)
	defer cancel()
	found, err := b.Exists(once)
	if err != nil && once.Err() != nil && ctx.Err() == nil {
		return true, nil
	}
	return found, err
}

func (b *Bucket) getDirect(ctx context.Context, key string) (Record, error) {
	msg, err := b.c.Request(ctx, &nats.Msg{Subject: b.get1 + key})
	if err != nil {
		return Record{}, err
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return b.message(msg)
	case "404":
		return Record{Key: key}, nil
	default:
		return Record{}, bb.E(bb.Internal, "get", key, "server status "+status)
	}
}

// message reads the answer to a direct get.
func (b *Bucket) message(msg *nats.Msg) (Record, error) {
	seq, err := strconv.ParseUint(msg.Header.Get(hdrSequence), 10, 64)
	key, ok := strings.CutPrefix(msg.Header.Get(hdrSubject), b.subject)
	if err != nil || !ok {
		return Record{}, bb.E(bb.Internal, "get", msg.Header.Get(hdrSubject), "the server's answer is malformed")
	}
	return Record{Key: key, Seq: seq, Data: msg.Data, By: writer(msg.Header), Gone: goneFile(msg.Header)}, nil
}

// goneFile reads which file a deletion removed.
func goneFile(h nats.Header) bb.FileID {
	id, _ := ParseID(h.Get(hdrGone))
	return bb.FileID(id)
}

func markGone(h nats.Header, file bb.FileID) {
	if file != 0 {
		h[hdrGone] = []string{strconv.FormatUint(uint64(file), 16)}
	}
}

func writer(h nats.Header) string {
	if id := h.Get(hdrBatchID); id != "" {
		return id
	}
	return h.Get(hdrNonce)
}

// Put stores data under a key if its revision is expected (0: it does not exist), and returns the
// new revision. Otherwise it returns errConflict. If the answer is lost, it finds out the outcome
// of the change.
func (b *Bucket) Put(ctx context.Context, key string, data []byte, expected uint64) (uint64, error) {
	id := b.c.Nonce()
	h := nats.Header{hdrExpected: {strconv.FormatUint(expected, 10)}, hdrNonce: {id}}
	return b.publish(ctx, key, data, h, expected, id)
}

// Create stores data under a key that must not exist. Otherwise it returns errConflict and the existing record.
func (b *Bucket) Create(ctx context.Context, key string, data []byte, tombstone uint64) (uint64, Record, error) {
	for try := 0; ; try++ {
		seq, err := b.Put(ctx, key, data, tombstone)
		if !errors.Is(err, ErrRevision) {
			return seq, Record{}, err
		}
		retry.Pause(ctx, try)
		r, err := b.Get(ctx, key)
		if err != nil {
			return 0, Record{}, err
		}
		if r.Live() {
			return 0, r, ErrRevision
		}
		tombstone = r.Seq
	}
}

// Remove deletes a key if its revision is expected. Otherwise it returns errConflict. The marker
// that it leaves stays for good, or until the key is used again. The server drops a version that
// another one replaces from its index, not from its log. If the marker expired (Nats-TTL), or were
// deleted, a server that is killed would find the version before it in the log and restore it as
// the newest (nats-server 2.15, TestRemovedStaysRemoved).
func (b *Bucket) Remove(ctx context.Context, key string, expected uint64) (uint64, error) {
	return b.RemoveFile(ctx, key, expected, 0)
}

// RemoveFile is remove of a file's key. The marker names the file, so that a holder of its bytes
// can distinguish its removal from a loss of its record.
func (b *Bucket) RemoveFile(ctx context.Context, key string, expected uint64, file bb.FileID) (uint64, error) {
	id := b.c.Nonce()
	h := nats.Header{
		hdrExpected: {strconv.FormatUint(expected, 10)}, hdrOperation: {"DEL"}, hdrNonce: {id},
	}
	markGone(h, file)
	return b.publish(ctx, key, nil, h, expected, id)
}

// Discard is remove of a key that does no harm if it stays. It does not wait.
func (b *Bucket) Discard(key string, expected uint64) {
	b.c.Send(&nats.Msg{Subject: b.subject + key, Header: nats.Header{
		hdrExpected: {strconv.FormatUint(expected, 10)}, hdrOperation: {"DEL"},
	}})
}

// publish sends one change until the server reports its outcome. The change has
// an id, by which its record can be distinguished from another writer's.
//
// A refusal decides nothing where there are several copies, since it may come from a leader that is
// none any more and has old revisions, or be owed to a change that was lost with its leader. So the
// record is read then, by a read that is never old. If that still has the expected revision, the
// change is sent again.
func (b *Bucket) publish(ctx context.Context, key string, data []byte, h nats.Header, expected uint64, id string) (uint64, error) {
	lost := false
	for try := 0; ; try++ {
		ack, err := b.c.Request(ctx, &nats.Msg{Subject: b.subject + key, Header: h, Data: data})
		var seq uint64
		if err == nil {
			seq, err = conn.ParseAck(ack.Data)
		}
		switch {
		case err == nil:
			return seq, nil
		case errors.Is(err, ErrRevision) && !lost && !b.Replicated():
			return 0, err
		case errors.Is(err, ErrRevision):
			r, gerr := b.Get(ctx, key)
			switch {
			case gerr != nil && lost:
				return 0, fmt.Errorf("%w: %w", ErrMaybeDone, gerr)
			case gerr != nil:
				return 0, gerr
			case r.By == id:
				return r.Seq, nil
			case r.Seq != expected && lost:
				return 0, fmt.Errorf("%w: another change of it was found", ErrMaybeDone)
			case r.Seq != expected:
				return 0, err
			}
			err = ErrInProcess
		case errors.Is(err, ErrUncertain):
			lost = true
		}
		if errors.Is(err, ErrInProcess) {
			retry.Pause(ctx, try)
			err = b.c.Wait(ctx)
		} else {
			err = b.retry(ctx, err)
		}
		if err != nil {
			return 0, afterLoss(lost, err)
		}
	}
}

// afterLoss is the error of a change that is not sent again. If the answer to it was lost
// before, it may have been carried out.
func afterLoss(lost bool, err error) error {
	if !lost || errors.Is(err, ErrNoBucket) || errors.Is(err, ErrMaybeDone) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrMaybeDone, err)
}
