package kv

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/retry"
)

const (
	SmallScan   = 1024 // most keys that the server returns the last value of in one answer
	scanBuffer  = 8192 // messages between the server's pace and ours
	scanSilence = 500 * time.Millisecond
)

// ErrStop ends a scan early.
var ErrStop = errors.New("stop")

// Scan calls fn with every record whose key matches a filter, deleted ones too, until it has caught
// up with the bucket. A key that changes meanwhile comes again, with its newer revision. A key that
// exists throughout comes at least once. fn may keep the record's data but not the record. An error
// of fn ends the scan. errStop ends it well.
//
// Few keys come in one answer. Many come through a feed, at the pace of fn.
func (b *Bucket) Scan(ctx context.Context, filter string, fn func(*Record) error) error {
	records, all, err := b.Newest(ctx, filter)
	if err != nil {
		return err
	}
	if !all {
		return b.consume(ctx, filter, fn)
	}
	for i := range records {
		if err := fn(&records[i]); err != nil {
			return stopped(err)
		}
	}
	return nil
}

func stopped(err error) error {
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

func (b *Bucket) newestOnce(ctx context.Context, body []byte) (records []Record, all bool, err error) {
	err = b.many(ctx, body, SmallScan, func(r *Record) error {
		records = append(records, *r)
		return nil
	}, &all)
	if errors.Is(err, errTooMany) {
		return nil, false, nil
	}
	return records, all, err
}

// errTooMany: the server does not search so many keys at once.
var errTooMany = errors.New("too many keys")

// many sends a direct get that has up to n answers, all of one moment, and calls fn with each. all
// reports whether there are no more.
func (b *Bucket) many(ctx context.Context, query []byte, n int, fn func(*Record) error, all *bool) error {
	some := false
	msg := &nats.Msg{Subject: "$JS.API.DIRECT.GET.KV_" + b.name, Data: query}
	return b.c.Answers(ctx, msg, n, func(msg *nats.Msg) (last bool, err error) {
		switch status := msg.Header.Get("Status"); status {
		case "":
			r, err := b.message(msg)
			if err != nil {
				return false, err
			}
			some = true
			return false, fn(&r)
		case "204":
			*all = msg.Header.Get("Nats-Num-Pending") == "0"
			return true, nil
		case "404":
			if some {
				return false, ErrUncertain // one of the records went away meanwhile
			}
			*all = true
			return true, nil
		case "413":
			return false, errTooMany
		default:
			return false, bb.E(bb.Internal, "list", b.name, "server status "+status)
		}
	})
}

// consume is scan through a feed. Where that has a gap, the next one continues.
func (b *Bucket) consume(ctx context.Context, filter string, fn func(*Record) error) error {
	for from, again := uint64(1), true; again; {
		var err error
		if from, again, err = b.consumeOnce(ctx, filter, from, fn); err != nil {
			return stopped(err)
		}
	}
	return nil
}

// consumeOnce is consume from a sequence on. It returns where to continue if there is a gap.
func (b *Bucket) consumeOnce(ctx context.Context, filter string, from uint64, fn func(*Record) error) (next uint64, gap bool, err error) {
	feeding, cancel := context.WithCancel(ctx)
	defer cancel()
	msgs := make(chan conn.Fed, scanBuffer)
	feed, err := b.feed(ctx, filter, conn.From(from), func(m conn.Fed) {
		select {
		case msgs <- m:
		case <-feeding.Done():
		}
	})
	if err != nil {
		return 0, false, err
	}
	defer feed.Stop(ctx)
	if next, err = b.drain(ctx, from, msgs, fn); err != nil {
		return 0, false, err
	}
	if feed.Gap() {
		return next, true, nil
	}
	return 0, false, b.rest(ctx, filter, next, fn)
}

func (b *Bucket) feed(ctx context.Context, filter string, from conn.From, handle func(conn.Fed)) (*conn.Feed, error) {
	return b.c.Feed(ctx, "KV_"+b.name, b.subject+filter, from, handle)
}

// fed returns the record of a feed's message.
func (b *Bucket) fed(m *conn.Fed) (r Record, ok bool) {
	key, ok := strings.CutPrefix(m.Subject, b.subject)
	return Record{Key: key, Seq: m.Seq, Data: m.Data, Gone: goneFile(m.Header)}, ok && m.Seq > 0
}

// drain hands messages to fn until the consumer reports that it has caught up, or is silent, and
// returns the sequence that follows them. The report of the consumer is not reliable, since its
// count of pending messages goes wrong when keys change while it is at work, which moves their
// messages to the end.
func (b *Bucket) drain(ctx context.Context, from uint64, msgs <-chan conn.Fed, fn func(*Record) error) (uint64, error) {
	silence := time.NewTimer(scanSilence)
	defer silence.Stop()
	for {
		select {
		case m := <-msgs:
			r, ok := b.fed(&m)
			if !ok {
				return from, bb.E(bb.Internal, "list", b.name, "the server's message is malformed")
			}
			if !IsBarrier(r.Key) {
				if err := fn(&r); err != nil {
					return from, err
				}
			}
			if from = r.Seq + 1; m.Pending == 0 {
				return from, nil
			}
			silence.Reset(scanSilence)
		case <-silence.C:
			return from, nil
		case <-ctx.Done():
			return from, b.c.Unavailable(ctx, "list", ErrUncertain)
		}
	}
}

// rest calls fn with the records from a sequence on. Each answer is of one moment, so the one after
// which nothing is left has caught up, however fast others write. Where there are several copies,
// it must also hold a barrier that was put for it.
func (b *Bucket) rest(ctx context.Context, filter string, from uint64, fn func(*Record) error) error {
	for try := 0; ; try++ {
		barrier := uint64(0)
		if b.Replicated() {
			var err error
			if barrier, err = b.putBarrier(ctx, barrierOf(filter)); err != nil {
				return err
			}
		}
		query, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": b.subject + filter, "batch": SmallScan})
		if err != nil {
			return err
		}
		all, seen := false, barrier == 0
		err = b.many(ctx, query, SmallScan, func(r *Record) error {
			from = r.Seq + 1
			if IsBarrier(r.Key) {
				seen = seen || r.Seq >= barrier
				return nil
			}
			return fn(r)
		}, &all)
		switch {
		case errors.Is(err, ErrUncertain) || errors.Is(err, ErrNoServer) || errors.Is(err, nats.ErrNoResponders):
			if err := b.retry(ctx, err); err != nil {
				return err
			}
		case err != nil:
			return err
		case all && seen:
			return nil
		case !seen:
			retry.Pause(ctx, try)
		}
	}
}

// ErrSetBack: the server has lost acknowledged changes.
var ErrSetBack = errors.New("the server was set back")

// ChangedSince calls fn with the newest record of each key that matches a filter and was changed at
// a sequence or after it, deleted ones too, in the order of their changes. It requests one at a
// time. An answer of several counts all keys that match, so that its cost grows with those that did
// not change (nats-server 2.15). errSetBack if the server uses sequences again.
func (b *Bucket) ChangedSince(ctx context.Context, filter string, from uint64, fn func(*Record)) error {
	barrier := uint64(0)
	if b.Replicated() {
		var err error
		if barrier, err = b.putBarrier(ctx, barrierOf(filter)); err != nil {
			return err
		}
		if barrier < from {
			return ErrSetBack
		}
	}
	for try, seen := 0, barrier == 0; ; {
		r, err := b.askDirect(ctx, map[string]any{"seq": from, "next_by_subj": b.subject + filter})
		switch {
		case err != nil:
			if err := b.retry(ctx, err); err != nil {
				return err
			}
		case r.Seq == 0 && seen:
			return nil
		case r.Seq == 0: // that copy lacks the barrier
			retry.Pause(ctx, try)
			try++
			if err := b.c.Wait(ctx); err != nil {
				return err
			}
		case IsBarrier(r.Key):
			from, seen = r.Seq+1, seen || r.Seq >= barrier
		default:
			from = r.Seq + 1
			fn(&r)
		}
	}
}

// Empty reports whether no key that matches a filter exists.
func (b *Bucket) Empty(ctx context.Context, filter string) (bool, error) {
	empty := true
	err := b.Scan(ctx, filter, func(r *Record) error {
		if r.Live() {
			empty = false
			return ErrStop
		}
		return nil
	})
	return empty, err
}
