package kv

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/rounds"
	"forebay/meta/conn"
	"forebay/meta/retry"
)

// barriers makes reads of a bucket with several copies return all changes that were acknowledged
// before they began.
//
// A change is acknowledged when a majority of the copies has it, so any one copy may lack it: a
// follower until the change reaches it, and for good while it is cut off. Nor is the leader's
// answer enough. A leader that was cut off, or stopped and continued, continues to answer reads
// (STREAM.MSG.GET) from its own copy until it detects the loss. nats-server 2.15 checks every 10 s
// whether messages of a majority came in the last 10 s (raft.go, lostQuorumInterval), while another
// is elected within 5 s (package elections), or 9 s by external servers. And there is no read of a
// majority: "min last sequence" is an error code that nothing returns yet.
//
// So a read first puts a barrier, a message without meaning, under a key of the same bucket, and
// waits until it is acknowledged. Only a leader that a majority follows can do that, and the copies
// apply all changes in one order. Then it reads from any copy, in practice that of the server it is
// connected to, for its key and the barrier's at one moment. If the barrier in the answer is at
// least as new as its own, so is the rest. If not, it reads again. Waiting readers share the next
// barrier, so that there is never more than one in flight for any number of readers.
//
// The same makes outcomes certain. That a record exists, or does not, is always the answer of such
// a read or a compare-and-set that was accepted. (A new leader answers only once it has applied the
// acknowledged changes of the one before: raft.go, aflr.) With one copy, one server has it all and
// answers for itself.
type barriers struct{ rounds.Group[uint64] }

// barrierToken is the last token of the keys of barriers. No name is encoded like that.
const barrierToken = "="

// IsBarrier reports whether a key is a barrier's, which has no meaning.
func IsBarrier(key string) bool { return strings.HasSuffix(key, "."+barrierToken) }

// barrierOf is a key that a filter matches.
func barrierOf(filter string) string {
	return filter[:strings.LastIndexByte(filter, '.')+1] + barrierToken
}

// Replicated reports whether a copy may lack acknowledged changes.
func (b *Bucket) Replicated() bool { return b.replicas > 1 || b.copies.Load() > 1 }

// barrier returns the sequence of a barrier that was put after it was called.
func (b *Bucket) barrier(ctx context.Context) (uint64, error) {
	for try := 0; ; try++ {
		seq, err := b.barriers.Do(ctx, func(ctx context.Context) (uint64, error) {
			return b.tryBarrier(ctx, try, "x."+barrierToken)
		})
		if err == nil {
			return seq, nil
		}
		if ctx.Err() != nil {
			return 0, b.c.Unavailable(ctx, "namespace server", ErrUncertain)
		}
		if err := b.retry(ctx, err); err != nil {
			return 0, err
		}
	}
}

// barrierPatience bounds the wait for a barrier, and twice as long for the next one, up to conn.AttemptTimeout. One
// that was on its way to a leader that died is never answered.
const barrierPatience = time.Second

func (b *Bucket) tryBarrier(ctx context.Context, try int, key string) (uint64, error) {
	once, cancel := context.WithTimeout(ctx, min(barrierPatience<<min(try, 8), conn.AttemptTimeout))
	defer cancel()
	ack, err := b.c.Request(once, &nats.Msg{Subject: b.subject + key, Data: []byte("-")})
	if err != nil && once.Err() != nil && ctx.Err() == nil {
		err = ErrUncertain
	}
	if err != nil {
		return 0, err
	}
	return conn.ParseAck(ack.Data)
}

// putBarrier puts a barrier under a key of its own.
func (b *Bucket) putBarrier(ctx context.Context, key string) (uint64, error) {
	for try := 0; ; try++ {
		seq, err := b.tryBarrier(ctx, try, key)
		if err == nil {
			return seq, nil
		}
		if err := b.retry(ctx, err); err != nil {
			return 0, err
		}
	}
}

// Newest returns the records of all keys that match filters, as of one moment after
// newest was called, or false if they are too many for that.
func (b *Bucket) Newest(ctx context.Context, filters ...string) ([]Record, bool, error) {
	subjects := make([]string, 0, len(filters)+1)
	for _, f := range filters {
		subjects = append(subjects, b.subject+f)
	}
	since := uint64(0)
	if b.Replicated() {
		var err error
		if since, err = b.barrier(ctx); err != nil {
			return nil, false, err
		}
		subjects = append(subjects, b.subject+"x."+barrierToken)
	}
	body, err := json.Marshal(map[string]any{"multi_last": subjects, "batch": SmallScan})
	if err != nil {
		return nil, false, err
	}
	for try := 0; ; try++ {
		records, all, err := b.newestOnce(ctx, body)
		if err == nil && (since == 0 || !all || passed(records, since)) {
			return slices.DeleteFunc(records, func(r Record) bool { return IsBarrier(r.Key) }), all, nil
		}
		if err == nil {
			retry.Pause(ctx, try)
			err = b.c.Wait(ctx)
		} else {
			err = b.retry(ctx, err)
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// passed reports whether records were read from a copy that has a barrier.
func passed(records []Record, barrier uint64) bool {
	return slices.ContainsFunc(records, func(r Record) bool { return r.Seq >= barrier && r.Key == "x."+barrierToken })
}
