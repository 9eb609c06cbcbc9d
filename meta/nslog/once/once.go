// Package once has the identity of a change that may be sent to the owner of a log more than once, and the changes that the
// owner has refused. It must never depend on the kind of a change.
package once

import (
	"context"
	"fmt"
	"maps"

	"forebay/internal/bb"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
)

// ID distinguishes a client's change from all others. A change that is sent again with its ID is
// carried out once, and answered as it was the first time.
type ID struct {
	Session  record.Session
	Number   uint64 // counts the session's changes, from 1 on
	Answered uint64 // changes below this number were answered, and are not sent again
}

type idKey struct{}

// With returns a context for one change: a call of Create, Put, PutWith, Update, SetAttr, Mkdir, Rename,
// Exchange, Remove, RemoveAll or Records.Commit.
func With(ctx context.Context, id ID) context.Context { return context.WithValue(ctx, idKey{}, id) }

// Without is for the parts of a change.
func Without(ctx context.Context) context.Context {
	if _, has := IDOf(ctx); has {
		return context.WithValue(ctx, idKey{}, ID{})
	}
	return ctx
}

// IDOf returns the ID of a change.
func IDOf(ctx context.Context) (ID, bool) {
	id, _ := ctx.Value(idKey{}).(ID)
	return id, id.Number != 0
}

// Refusals are the errors of changes that left nothing in the log. A copy of such a change that
// arrives late, at the same owner, is not carried out after all. (Another owner would carry it out,
// so calls name the Incarnation that they are for.) They go when the client has answered for them.
type Refusals map[record.Session]*refusedOf

type refusedOf struct {
	answered uint64 // the highest so far
	errs     map[uint64]error
}

// Answer returns the error of a change that was refused before, or was answered.
func (r Refusals) Answer(id ID) error {
	s := r[id.Session]
	if s == nil {
		return nil
	}
	if err, is := s.errs[id.Number]; is {
		return err
	}
	if id.Number < s.answered {
		return sentAgain(id)
	}
	return nil
}

// Note records the error of a change. The error is nil if it was carried out.
func (r Refusals) Note(id ID, err error) {
	s := r[id.Session]
	if s == nil {
		s = &refusedOf{errs: map[uint64]error{}}
		r[id.Session] = s
	}
	if id.Answered > s.answered {
		s.answered = id.Answered
		maps.DeleteFunc(s.errs, func(number uint64, _ error) bool { return number < id.Answered })
	}
	if err != nil {
		s.errs[id.Number] = err
	}
}

// CheckFloor refuses a change with a dropped outcome, since it may have been carried out.
func CheckFloor(t *table.Table, id ID) error {
	item, ok := t.Get(record.OutcomeKey(id.Session, 0))
	if !ok {
		return nil
	}
	floor, err := record.OpenFloor(item.Value)
	if err == nil && id.Number < floor {
		err = sentAgain(id)
	}
	return err
}

func sentAgain(id ID) error {
	return bb.MaybeDone(bb.E(bb.Unavailable, "change", fmt.Sprintf("%d of session %v", id.Number, id.Session), "it was answered before, and is sent again"))
}
