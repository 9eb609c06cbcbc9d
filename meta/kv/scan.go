package kv

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

const (
	SmallScan   = 1024 // most keys that the server returns the last value of in one answer
	scanBuffer  = 8192 // messages between the server's pace and ours
	scanSilence = 500 * time.Millisecond
)

// ErrStop ends a scan early.
var ErrStop = errors.New("stop")

// Scan calls fn with every record whose key matches a filter, deleted ones too,
// until it has caught up with the bucket. A key that changes meanwhile comes again,
// with its newer revision; one that exists throughout comes at least once. fn may
// keep the record's data but not the record. An error of fn ends the scan; errStop
// ends it well.
//
// Few keys come in one answer; many through an ordered consumer, at the pace of fn.
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

// errTooMany: the server does not look for so many keys at once.
var errTooMany = errors.New("too many keys")

// many sends a direct get that has up to n answers, all of one moment, and calls fn
// with each; all tells whether there are no more.
func (b *Bucket) many(ctx context.Context, query []byte, n int, fn func(*Record) error, all *bool) error {
	call := &call{answers: make(chan *nats.Msg, n+2), timer: time.NewTimer(attemptTimeout)}
	defer call.timer.Stop()
	id := b.c.register(call)
	defer b.c.unregister(id)
	err := b.c.nc.PublishMsg(&nats.Msg{Subject: "$JS.API.DIRECT.GET.KV_" + b.name, Reply: b.c.reply(id), Data: query})
	if err != nil {
		return ErrNoServer
	}
	for some := false; ; some = true {
		msg, err := b.c.answer(ctx, call)
		if err != nil {
			return err
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
			r, err := b.message(msg)
			if err != nil {
				return err
			}
			if err := fn(&r); err != nil {
				return err
			}
		case "204":
			*all = msg.Header.Get("Nats-Num-Pending") == "0"
			return nil
		case "404":
			if some {
				return ErrUncertain // one of the records went away meanwhile
			}
			*all = true
			return nil
		case "413":
			return errTooMany
		default:
			return bb.E(bb.Internal, "list", b.name, "server status "+status)
		}
	}
}

// consume is scan through an ordered consumer.
func (b *Bucket) consume(ctx context.Context, filter string, fn func(*Record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msgs := make(chan *nats.Msg, scanBuffer)
	sub, err := b.subscribe(ctx, filter, func(msg *nats.Msg) {
		select {
		case msgs <- msg:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	return stopped(b.drain(ctx, filter, msgs, fn))
}

func (b *Bucket) subscribe(ctx context.Context, filter string, handler nats.MsgHandler, options ...nats.SubOpt) (*nats.Subscription, error) {
	options = append(options, nats.OrderedConsumer(), nats.BindStream("KV_"+b.name))
	for {
		sub, err := b.c.push.Subscribe(b.subject+filter, handler, options...)
		switch {
		case err == nil:
			return sub, nil
		case errors.Is(err, nats.ErrStreamNotFound):
			return nil, ErrNoBucket
		case ctx.Err() != nil:
			return nil, b.c.unavailable(ctx, "list", err)
		}
		if err := b.c.again(ctx); err != nil {
			return nil, err
		}
	}
}

// drain hands messages to fn until the consumer says that it has caught up, or is
// silent, and then the rest. The consumer cannot be believed about having caught up:
// its count of pending messages goes wrong when keys change while it is at work,
// which moves their messages to the end.
func (b *Bucket) drain(ctx context.Context, filter string, msgs <-chan *nats.Msg, fn func(*Record) error) error {
	silence := time.NewTimer(scanSilence)
	defer silence.Stop()
	last := uint64(0)
	for caughtUp := false; !caughtUp; {
		select {
		case msg := <-msgs:
			r, pending, ok := b.pushed(msg)
			if !ok {
				return bb.E(bb.Internal, "list", b.name, "the server's message is malformed")
			}
			if !IsBarrier(r.Key) {
				if err := fn(&r); err != nil {
					return err
				}
			}
			last, caughtUp = r.Seq, pending == 0
			silence.Reset(scanSilence)
		case <-silence.C:
			caughtUp = true
		case <-ctx.Done():
			return b.c.unavailable(ctx, "list", ErrUncertain)
		}
	}
	return b.rest(ctx, filter, last+1, fn)
}

// rest calls fn with the records from a sequence on. Each answer is of one moment, so
// the one after which nothing is left has caught up, however fast others write; where
// there are several copies, if it also holds a barrier that was put for it.
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
			Pause(ctx, try)
		}
	}
}

// ErrSetBack: the server has forgotten what it had acknowledged.
var ErrSetBack = errors.New("the server was set back")

// ChangedSince calls fn with the newest record of each key that matches a filter and was changed
// at a sequence or after it, deleted ones too, in the order of their changes. It asks for one at
// a time: an answer of several counts all keys that match, so that its cost grows with those
// that did not change (nats-server 2.15). errSetBack if the server gives sequences again.
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
			Pause(ctx, try)
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

// pushed reads a consumer's message, whose reply subject tells where it stands:
//
//	$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.SEQUENCE.N.TIME.PENDING[.RANDOM]
func (b *Bucket) pushed(msg *nats.Msg) (r Record, pending uint64, ok bool) {
	tokens := strings.Split(msg.Reply, ".")
	at := 2
	if len(tokens) >= 11 {
		at = 4
	}
	if len(tokens) < at+7 {
		return Record{}, 0, false
	}
	seq, err := strconv.ParseUint(tokens[at+3], 10, 64)
	pending, perr := strconv.ParseUint(tokens[at+6], 10, 64)
	key, ok := strings.CutPrefix(msg.Subject, b.subject)
	return Record{Key: key, Seq: seq, Data: msg.Data, Gone: goneFile(msg.Header)}, pending, ok && err == nil && perr == nil
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
