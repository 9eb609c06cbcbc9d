package meta

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/internal/bb"
)

const (
	hdrExpected        = "Nats-Expected-Last-Subject-Sequence"
	hdrExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	hdrSequence        = "Nats-Sequence"
	hdrSubject         = "Nats-Subject"
	hdrOperation       = "KV-Operation"
	hdrNonce           = "Forebay-Nonce"

	codeStreamNotFound    = 10059
	codeWrongSequence     = 10071
	codeWrongSequenceOfIt = 10164
)

var (
	errConflict = errors.New("the key has another revision")
	errNoBucket = errors.New("the bucket does not exist")
)

// bucket is one key-value bucket: a stream KV_name with one message per subject
// $KV.name.KEY. Tools that know NATS's key-value buckets can read it.
//
// A value's revision is its message's sequence. A deleted key has a message without
// data until that expires, then none.
type bucket struct {
	c        *conn
	counters *counters
	replicas int
	name     string
	subject  string // prefix of its subjects
	get1     string // prefix of direct gets
	getOne   string // subject of gets answered by the leader
	batches  chan struct{}
}

// record is one value of a bucket.
type record struct {
	key  string
	seq  uint64 // 0: the key does not exist
	data []byte // nil: it was deleted
	by   string // the batch or the nonce that wrote it
}

func (r *record) live() bool { return len(r.data) > 0 }

func (m *Meta) bucket(name string) *bucket {
	return &bucket{
		c: m.conn, counters: &m.counters, replicas: m.opts.Replicas, name: name,
		subject: "$KV." + name + ".",
		get1:    "$JS.API.DIRECT.GET.KV_" + name + ".$KV." + name + ".",
		getOne:  "$JS.API.STREAM.MSG.GET.KV_" + name,
		batches: make(chan struct{}, maxBatchesAtOnce),
	}
}

// ensure makes the bucket if it is not there.
func (b *bucket) ensure(ctx context.Context) error {
	return b.manage(ctx, func(ctx context.Context) error {
		_, err := b.c.admin.CreateStream(ctx, jetstream.StreamConfig{
			Name: "KV_" + b.name, Subjects: []string{b.subject + ">"}, Storage: jetstream.FileStorage,
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, AllowDirect: true,
			AllowAtomicPublish: true, Replicas: b.replicas, MaxMsgs: -1, MaxBytes: -1,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // made by another version: it is used as it is
		}
		return err
	})
}

func (b *bucket) exists(ctx context.Context) (bool, error) {
	found := true
	err := b.manage(ctx, func(ctx context.Context) error {
		_, err := b.c.admin.Stream(ctx, "KV_"+b.name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			found, err = false, nil
		}
		return err
	})
	return found, err
}

func (b *bucket) destroy(ctx context.Context) error {
	return b.manage(ctx, func(ctx context.Context) error {
		err := b.c.admin.DeleteStream(ctx, "KV_"+b.name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}

// manage calls an idempotent function of the stream API until the server answers.
func (b *bucket) manage(ctx context.Context, do func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := do(attempt)
		cancel()
		var api jetstream.JetStreamError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &api) && api.APIError() != nil && api.APIError().Code < 500:
			return bb.E(bb.Internal, "bucket", b.name, api.APIError().Error())
		}
		if ctx.Err() != nil {
			return b.c.unavailable(ctx, "bucket "+b.name, err)
		}
		if err := b.c.again(ctx); err != nil {
			return err
		}
	}
}

// get returns what is stored under a key. With one replica the server that holds it
// answers directly; with more, the leader does, so that the answer is never old.
func (b *bucket) get(ctx context.Context, key string) (record, error) {
	for {
		var r record
		var err error
		if b.replicas > 1 {
			r, err = b.getFromLeader(ctx, key)
		} else {
			r, err = b.getDirect(ctx, key)
		}
		if err == nil {
			return r, nil
		}
		if err := b.retry(ctx, err); err != nil {
			return record{}, err
		}
	}
}

// retry returns nil if a request that failed with err should be sent again.
func (b *bucket) retry(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		// Either the bucket is gone or the server is not ready.
		found, ferr := b.exists(ctx)
		if ferr != nil {
			return ferr
		}
		if !found {
			return errNoBucket
		}
		return b.c.again(ctx)
	case !errors.Is(err, errUncertain) && !errors.Is(err, errNoServer):
		return err
	case ctx.Err() != nil:
		return b.c.unavailable(ctx, "namespace server", err)
	}
	return b.c.again(ctx)
}

func (b *bucket) getDirect(ctx context.Context, key string) (record, error) {
	msg, err := b.c.request(ctx, &nats.Msg{Subject: b.get1 + key})
	if err != nil {
		return record{}, err
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return b.message(msg)
	case "404":
		return record{key: key}, nil
	default:
		return record{}, bb.E(bb.Internal, "get", key, "server status "+status)
	}
}

// message reads the answer to a direct get.
func (b *bucket) message(msg *nats.Msg) (record, error) {
	seq, err := strconv.ParseUint(msg.Header.Get(hdrSequence), 10, 64)
	key, ok := strings.CutPrefix(msg.Header.Get(hdrSubject), b.subject)
	if err != nil || !ok {
		return record{}, bb.E(bb.Internal, "get", msg.Header.Get(hdrSubject), "the server's answer is malformed")
	}
	return record{key: key, seq: seq, data: msg.Data, by: writer(msg.Header)}, nil
}

func writer(h nats.Header) string {
	if id := h.Get(hdrBatchID); id != "" {
		return id
	}
	return h.Get(hdrNonce)
}

// stored is the leader's answer to a get.
type stored struct {
	Message *struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Header  []byte `json:"hdrs"`
		Data    []byte `json:"data"`
	} `json:"message"`
	Error *apiError `json:"error"`
}

type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("server error %d: %s", e.ErrCode, e.Description)
}

func (b *bucket) getFromLeader(ctx context.Context, key string) (record, error) {
	r, err := b.ask(ctx, map[string]any{"last_by_subj": b.subject + key})
	r.key = key
	return r, err
}

// ask sends a get to the leader; a record with sequence 0 says that there is none.
func (b *bucket) ask(ctx context.Context, query map[string]any) (record, error) {
	body, err := json.Marshal(query)
	if err != nil {
		return record{}, err
	}
	msg, err := b.c.request(ctx, &nats.Msg{Subject: b.getOne, Data: body})
	if err != nil {
		return record{}, err
	}
	var answer stored
	switch err := json.Unmarshal(msg.Data, &answer); {
	case err != nil:
		return record{}, bb.E(bb.Internal, "get", b.name, err.Error())
	case answer.Error != nil && answer.Error.ErrCode == codeStreamNotFound:
		return record{}, errNoBucket
	case answer.Error != nil && answer.Error.Code == 404:
		return record{}, nil
	case answer.Error != nil && answer.Error.Code == 503:
		return record{}, fmt.Errorf("%w: %w", errUncertain, answer.Error)
	case answer.Error != nil:
		return record{}, bb.E(bb.Internal, "get", b.name, answer.Error.Error())
	case answer.Message == nil:
		return record{}, nil
	}
	h, err := nats.DecodeHeadersMsg(answer.Message.Header)
	if err != nil && len(answer.Message.Header) > 0 {
		return record{}, bb.E(bb.Internal, "get", b.name, err.Error())
	}
	key := strings.TrimPrefix(answer.Message.Subject, b.subject)
	return record{key: key, seq: answer.Message.Seq, data: answer.Message.Data, by: writer(h)}, nil
}

// put stores data under a key if its revision is expected (0: it does not exist),
// and returns the new revision; else errConflict. If the answer is lost, it finds
// out what became of the change.
func (b *bucket) put(ctx context.Context, key string, data []byte, expected uint64) (uint64, error) {
	h := nats.Header{hdrExpected: {strconv.FormatUint(expected, 10)}}
	return b.publish(ctx, key, data, h, expected, func(r *record) bool { return bytes.Equal(r.data, data) })
}

// create stores data under a key that must not exist; else errConflict and what is there.
func (b *bucket) create(ctx context.Context, key string, data []byte, tombstone uint64) (uint64, record, error) {
	for {
		seq, err := b.put(ctx, key, data, tombstone)
		if !errors.Is(err, errConflict) {
			return seq, record{}, err
		}
		r, err := b.get(ctx, key)
		if err != nil {
			return 0, record{}, err
		}
		if r.live() {
			return 0, r, errConflict
		}
		tombstone = r.seq
	}
}

// remove deletes a key if its revision is expected; else errConflict. The marker that it
// leaves stays for good, or until the key is used again. The server drops a version that
// another one replaces from its index, not from its log: were the marker to expire
// (Nats-TTL), or to be deleted, a server that is killed would find the version before it
// in the log and take it for the newest (nats-server 2.15, TestRemovedStaysRemoved).
func (b *bucket) remove(ctx context.Context, key string, expected uint64) (uint64, error) {
	id := nonce()
	h := nats.Header{
		hdrExpected: {strconv.FormatUint(expected, 10)}, hdrOperation: {"DEL"}, hdrNonce: {id},
	}
	return b.publish(ctx, key, nil, h, expected, func(r *record) bool { return r.by == id })
}

// discard is remove for what does no harm if it stays: it does not wait.
func (b *bucket) discard(key string, expected uint64) {
	_ = b.c.nc.PublishMsg(&nats.Msg{Subject: b.subject + key, Header: nats.Header{
		hdrExpected: {strconv.FormatUint(expected, 10)}, hdrOperation: {"DEL"},
	}})
}

// publish sends one change until the server says what became of it. mine tells
// whether a record is the one that this change writes.
func (b *bucket) publish(ctx context.Context, key string, data []byte, h nats.Header, expected uint64, mine func(*record) bool) (uint64, error) {
	lost := false
	for {
		ack, err := b.c.request(ctx, &nats.Msg{Subject: b.subject + key, Header: h, Data: data})
		var seq uint64
		if err == nil {
			seq, err = parseAck(ack.Data)
		}
		switch {
		case err == nil:
			return seq, nil
		case errors.Is(err, errConflict) && lost:
			r, gerr := b.get(ctx, key)
			if gerr != nil {
				return 0, fmt.Errorf("%w: %w", errUncertain, gerr)
			}
			if r.seq > expected && mine(&r) {
				return r.seq, nil
			}
			return 0, fmt.Errorf("%w: another change of it was found", errUncertain)
		case errors.Is(err, errConflict):
			return 0, err
		case errors.Is(err, errUncertain):
			lost = true
		}
		if err := b.retry(ctx, err); err != nil {
			if lost && !errors.Is(err, errNoBucket) && !errors.Is(err, errUncertain) {
				err = fmt.Errorf("%w: %w", errUncertain, err)
			}
			return 0, err
		}
	}
}

// parseAck reads the acknowledgement of a publish.
func parseAck(data []byte) (uint64, error) {
	if !bytes.Contains(data, []byte(`"error"`)) {
		// {"stream":"KV_x","seq":123} with more fields after a batch
		if _, rest, ok := bytes.Cut(data, []byte(`"seq":`)); ok {
			n := 0
			var seq uint64
			for n < len(rest) && n < 19 && rest[n] >= '0' && rest[n] <= '9' {
				seq = seq*10 + uint64(rest[n]-'0')
				n++
			}
			if n > 0 && seq > 0 {
				return seq, nil
			}
		}
	}
	var ack struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(data, &ack); err != nil || ack.Error == nil {
		return 0, bb.E(bb.Internal, "put", "", fmt.Sprintf("the server's acknowledgement is malformed: %.80q", data))
	}
	switch {
	case ack.Error.ErrCode == codeWrongSequence, ack.Error.ErrCode == codeWrongSequenceOfIt:
		return 0, errConflict
	case ack.Error.ErrCode == codeStreamNotFound:
		return 0, errNoBucket
	case ack.Error.Code == 503:
		return 0, fmt.Errorf("%w: %w", errUncertain, ack.Error)
	}
	return 0, &bb.Error{Kind: bb.Internal, Op: "put", Err: ack.Error, Remedy: "see the NATS server's limits and log"}
}

func nonce() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
