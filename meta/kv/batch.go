package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/retry"
)

const (
	hdrBatchID     = "Nats-Batch-Id"
	hdrBatchSeq    = "Nats-Batch-Sequence"
	hdrBatchCommit = "Nats-Batch-Commit"

	codeBatchIncomplete = 10176
	codeBatchTooMany    = 10210

	// batchesAtOnce is how many batches of a bucket are under way at most. A server takes 50, and 1,000
	// of all streams (nats-server 2.15).
	batchesAtOnce = 32
)

// Change is one message of a batch: an atomic change of several keys.
type Change struct {
	Key      string
	Data     []byte // nil deletes the key
	Expected uint64 // its revision before
	// check is another key, which the batch does not write, whose revision must be
	// expected. The change's own key may then have any.
	Check string
	Own   uint64 // then: the key's own revision

	Gone bb.FileID // of a deletion: the file that is removed with it; 0: none
}

// checkKey carries a batch's check of a key that the batch does not write.
const checkKey = "x.check"

// Check is a change of a key that no user of the bucket reads. It makes a batch expect the revision
// of a key.
func Check(key string, revision uint64) Change {
	return Change{Key: checkKey, Data: []byte("-"), Check: key, Expected: revision}
}

// Commit carries out all changes, a thousand at most. If one of them meets another revision than
// expected, it carries out none and returns errConflict. It returns the revision of each change.
//
// The server writes a batch message by message. Killed in between, it finishes when it starts
// again.
func (b *Bucket) Commit(ctx context.Context, changes []Change) ([]uint64, error) {
	id := b.c.Nonce()
	msgs := make([]*nats.Msg, len(changes))
	for i, c := range changes {
		msgs[i] = b.batchMessage(id, i, len(changes), c)
	}
	last, err := b.publishBatch(ctx, id, msgs, changes)
	if err != nil {
		return nil, err
	}
	seqs := make([]uint64, len(changes))
	for i := range changes {
		seqs[i] = last - uint64(len(changes)-1-i)
	}
	return seqs, nil
}

func (b *Bucket) batchMessage(id string, i, n int, c Change) *nats.Msg {
	h := nats.Header{
		hdrBatchID: {id}, hdrBatchSeq: {strconv.Itoa(i + 1)},
		hdrExpected: {strconv.FormatUint(c.Expected, 10)},
	}
	if c.Check != "" {
		h[hdrExpectedSubject] = []string{b.subject + c.Check}
	}
	if len(c.Data) == 0 {
		h[hdrOperation] = []string{"DEL"}
		markGone(h, c.Gone)
	}
	if i == n-1 {
		h[hdrBatchCommit] = []string{"1"}
	}
	return &nats.Msg{Subject: b.subject + c.Key, Header: h, Data: c.Data}
}

// publishBatch sends a batch until the server reports its outcome.
func (b *Bucket) publishBatch(ctx context.Context, id string, msgs []*nats.Msg, changes []Change) (uint64, error) {
	lost := false
	for try := 0; ; try++ {
		seq, err := b.attempt(ctx, msgs)
		switch {
		case err == nil:
			return seq, nil
		case errors.Is(err, ErrRevision) && !lost && !b.Replicated():
			return 0, err
		case errors.Is(err, ErrRevision):
			seq, err = b.becameOf(ctx, id, changes, lost)
			if !errors.Is(err, ErrInProcess) {
				return seq, err
			}
		case errors.Is(err, ErrUncertain):
			lost = true
		}
		if errors.Is(err, errBusy) || errors.Is(err, ErrInProcess) {
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

// attempt sends a batch once.
func (b *Bucket) attempt(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	if b.batches.Acquire(ctx, 1) != nil {
		return 0, ErrNoServer
	}
	defer b.batches.Release(1)
	ack, err := b.c.Request(ctx, msgs...)
	if err != nil {
		return 0, err
	}
	return parseBatchAck(ack.Data)
}

// errBusy: the server has too many batches at a time, has no room for this one until it keeps batches
// elsewhere (meta/embedded/batches), or lost the beginning of it. It has changed nothing.
var errBusy = errors.New("the server cannot take the batch now")

func parseBatchAck(data []byte) (uint64, error) {
	var ack struct {
		Error *conn.APIError `json:"error"`
	}
	if json.Unmarshal(data, &ack) == nil && ack.Error != nil &&
		(ack.Error.ErrCode == codeBatchIncomplete || ack.Error.ErrCode == codeBatchTooMany) {
		return 0, errBusy
	}
	return conn.ParseAck(data)
}

// becameOf finds out the outcome of a refused batch. The server had carried it out before, or has
// old revisions, or was right (see publish).
//
// All its reads are of one moment. If a message of the batch is found, the batch was carried out.
// If all its expectations hold, it was not, and can be sent again (ErrInProcess). If one of them
// does not hold any more, it can never be carried out. It never was, if one of the keys that it
// would have written is as it was before.
func (b *Bucket) becameOf(ctx context.Context, id string, changes []Change, lost bool) (uint64, error) {
	found, err := b.revisions(ctx, changes)
	if err != nil {
		if lost {
			err = fmt.Errorf("%w: %w", ErrMaybeDone, err)
		}
		return 0, err
	}
	holds, untouched := true, false
	for i, c := range changes {
		r := found[c.Key]
		if r.By == id {
			return r.Seq + uint64(len(changes)-1-i), nil
		}
		if c.Check != "" {
			holds = holds && found[c.Check].Seq == c.Expected
			continue
		}
		holds = holds && r.Seq == c.Expected
		untouched = untouched || r.Seq == c.Expected
	}
	switch {
	case holds:
		return 0, ErrInProcess
	case !lost || untouched:
		return 0, ErrRevision
	}
	return 0, fmt.Errorf("%w: others changed the same since", ErrMaybeDone)
}

// revisions returns the records of all keys that a batch writes or checks.
func (b *Bucket) revisions(ctx context.Context, changes []Change) (map[string]Record, error) {
	keys := make([]string, 0, len(changes)+1)
	for _, c := range changes {
		keys = append(keys, c.Key)
		if c.Check != "" {
			keys = append(keys, c.Check)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	records, all, err := b.Newest(ctx, keys...)
	if err == nil && !all {
		err = errTooMany
	}
	found := make(map[string]Record, len(records))
	for _, r := range records {
		found[r.Key] = r
	}
	return found, err
}
