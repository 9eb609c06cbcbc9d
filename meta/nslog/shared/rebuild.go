package shared

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog"
	"forebay/meta/nslog/shared/calls"
)

// RebuildKey is the key of the record that a log has while its names are restored. A log that is begun anew in the place
// of a damaged one lacks names until each daemon has restored those of its own files. Until then its owner answers no
// calls but theirs (calls.Restoring), since it does not know which names are there:
//
//	               a daemon begins it          each daemon restores its files          Rebuilt
//	damaged log ──────────────────▶ RebuildKey ───────────────────────────▶ RebuildKey ──────▶ all calls are answered
//
// The record is a part of the log from the start, so that any owner has it.
const RebuildKey = "rebuild"

// Rebuilding reports whether the names of the log are being restored.
func (t *Tree) Rebuilding(ctx context.Context) (bool, error) {
	r, err := t.Records().Get(calls.Restoring(ctx), RebuildKey)
	return err == nil && r.Live(), err
}

// Rebuilt ends the restoration. All names are there that are going to be.
func (t *Tree) Rebuilt(ctx context.Context) error {
	ctx = calls.Restoring(ctx)
	r, err := t.Records().Get(ctx, RebuildKey)
	if err != nil || !r.Live() {
		return err
	}
	if _, err = t.Records().Remove(ctx, RebuildKey, r.Seq); errors.Is(err, kv.ErrRevision) {
		err = nil // another daemon has ended it
	}
	return err
}

// complete returns an error while names of this daemon's engine are being restored.
func (t *Tree) complete(ctx context.Context, e *nslog.Engine) error {
	if t.whole.Load() == e {
		return nil
	}
	r, err := e.Records().Get(ctx, RebuildKey)
	if err == nil && r.Live() {
		err = bb.E(bb.Unavailable, "namespace", t.o.Buffer, "it is being rebuilt, and the files of some nodes may be missing yet").
			WithRemedy("wait for the end of bbctl buffer rebuild, or, if that ended early, repeat it")
	}
	if err == nil {
		t.whole.Store(e)
	}
	return err
}

// Rouse has a daemon that serves the log make that again, if it is gone, and reports whether there is such a daemon. All
// but those that are gone are asked (calls.Rouse).
func (t *Tree) Rouse(ctx context.Context, within time.Duration) (is bool, err error) {
	for _, m := range t.members() {
		if m.Gone || m.Node == t.o.Node {
			continue
		}
		is, rerr := calls.Rouse(ctx, within, calls.Call{From: t.o.Node}, func(ctx context.Context, c *calls.Call) (*calls.Answer, error) {
			return t.caller.Call(ctx, m.Node, c)
		})
		if is {
			t.setOver(nil)
			return true, nil
		}
		err = errors.Join(err, bb.Wrap("rouse "+string(m.Node), t.o.Buffer, rerr))
	}
	return false, err
}
