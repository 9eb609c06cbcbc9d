// Package fault wraps a store so that chosen calls fail in chosen ways, for tests and rehearsals.
// It must never be in a stack by default.
package fault

import (
	"context"
	"io"
	"sync"
	"syscall"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// Kind is a way to fail.
type Kind string

// The ways to fail.
const (
	Refused       Kind = "refused"        // the call does not reach the store
	Reset         Kind = "reset"          // it is carried out, and its answer is lost
	Slow          Kind = "slow"           // it takes Rule.Delay longer, or lasts until Rule.Until
	Full          Kind = "full"           // ENOSPC
	Busy          Kind = "503"            // the store requests a later retry
	WrongChecksum Kind = "wrong checksum" // Put: bytes change on their way; Get: they come back changed
	Truncated     Kind = "truncated"      // Put: the bytes end early; Get: the answer does
)

// Rule selects calls that fail. The first rule that matches a call is applied.
type Rule struct {
	Op    string // put, get, stat, list, rename, remove, check, sweep; "": all
	Name  string // "": all
	Skip  int    // so many matching calls pass before
	Count int    // so many fail; 0: all from then on
	Kind  Kind
	Delay time.Duration // of Slow
	// Until, of Slow, is closed when the calls that the rule has matched continue, and Delay does not count. Nil: after
	// Delay.
	Until <-chan struct{}
}

// Plan is a set of rules that several stores may share. Its methods may be called
// concurrently.
type Plan struct {
	mu    sync.Mutex
	rules []*Rule
	hits  int
}

// NewPlan returns a plan.
func NewPlan(rules ...Rule) *Plan {
	p := &Plan{}
	p.Set(rules...)
	return p
}

// Set replaces all rules. Without any, everything works again.
func (p *Plan) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
	for _, r := range rules {
		r.Count = max(r.Count, 0)
		p.rules = append(p.rules, &r)
	}
}

// Hits returns how many calls were made to fail.
func (p *Plan) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// next finds the rule for a call and counts it.
func (p *Plan) next(op, name string) Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.Op != "" && r.Op != op || r.Name != "" && r.Name != name || r.Count < 0 {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		if r.Count > 0 {
			if r.Count--; r.Count == 0 {
				r.Count = -1 // used up
			}
		}
		p.hits++
		return *r
	}
	return Rule{}
}

// Wrap returns a store that fails by plan.
func Wrap(inner backing.Store, plan *Plan) backing.Store { return &store{inner, plan} }

type store struct {
	backing.Store
	plan *Plan
}

// wait waits for the time of the rule.
func (r *Rule) wait(ctx context.Context, op, name string) error {
	if r.Kind != Slow {
		return nil
	}
	var over <-chan time.Time
	if r.Until == nil {
		timer := time.NewTimer(r.Delay)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return nil
	case <-r.Until:
		return nil
	case <-ctx.Done():
		return bb.Wrap(op, name, ctx.Err())
	}
}

// call applies the rule for a call around fn, which carries it out.
func (s *store) call(ctx context.Context, op, name string, fn func(Rule) error) error {
	return s.callBut(ctx, op, name, false, fn)
}

// callBut is call. If waits, fn is slowed by the rule.
func (s *store) callBut(ctx context.Context, op, name string, waits bool, fn func(Rule) error) error {
	rule := s.plan.next(op, name)
	switch rule.Kind {
	case Refused:
		return &bb.Error{Kind: bb.Unavailable, Op: op, Path: name, Err: syscall.ECONNREFUSED}
	case Full:
		return &bb.Error{Kind: bb.NoSpace, Op: op, Path: name, Err: syscall.ENOSPC}
	case Busy:
		return bb.E(bb.Unavailable, op, name, "503 service unavailable")
	case Slow:
		if waits {
			break
		}
		if err := rule.wait(ctx, op, name); err != nil {
			return err
		}
	}
	err := fn(rule)
	if err == nil && rule.Kind == Reset {
		return &bb.Error{Kind: bb.Unavailable, Op: op, Path: name, Err: syscall.ECONNRESET}
	}
	return err
}

func (s *store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (o backing.Object, err error) {
	rule, last := Rule{}, opts.Last
	if last != nil { // a slow Put is slow after that, as a store may be
		opts.Last = func(ctx context.Context) error {
			if err := last(ctx); err != nil {
				return err
			}
			return rule.wait(ctx, "put", name)
		}
	}
	err = s.callBut(ctx, "put", name, last != nil, func(r Rule) (err error) {
		rule = r
		if r.Kind == WrongChecksum || r.Kind == Truncated {
			src = &source{src, r.Kind}
		}
		o, err = s.Store.Put(ctx, name, src, opts)
		return inTransit(r, name, err)
	})
	return o, err
}

// inTransit takes the blame off the source. The fault is meant to be on the way, where another
// attempt may go well.
func inTransit(r Rule, name string, err error) error {
	switch {
	case err == nil || r.Kind != WrongChecksum && r.Kind != Truncated:
		return err
	default:
		return bb.E(bb.KindOf(err), "put", name, err.Error())
	}
}

func (s *store) Get(ctx context.Context, name string, off, n int64) (body io.ReadCloser, err error) {
	err = s.call(ctx, "get", name, func(r Rule) (err error) {
		body, err = s.Store.Get(ctx, name, off, n)
		if err == nil && (r.Kind == WrongChecksum || r.Kind == Truncated) {
			body = &reader{ReadCloser: body, kind: r.Kind}
		}
		return err
	})
	return body, err
}

func (s *store) Stat(ctx context.Context, name string) (o backing.Object, err error) {
	err = s.call(ctx, "stat", name, func(Rule) (err error) {
		o, err = s.Store.Stat(ctx, name)
		return err
	})
	return o, err
}

func (s *store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	return s.call(ctx, "list", dir, func(Rule) error { return s.Store.Others(ctx, dir, fn) })
}

func (s *store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	return s.call(ctx, "list", prefix, func(Rule) error { return s.Store.List(ctx, prefix, fn) })
}

func (s *store) Rename(ctx context.Context, old, newName string) error {
	return s.call(ctx, "rename", old, func(Rule) error { return s.Store.Rename(ctx, old, newName) })
}

func (s *store) Remove(ctx context.Context, name string) error {
	return s.call(ctx, "remove", name, func(Rule) error { return s.Store.Remove(ctx, name) })
}

func (s *store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	return s.call(ctx, "remove", name, func(Rule) error { return s.Store.RemoveIf(ctx, name, is) })
}

func (s *store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	return s.call(ctx, "rename", old, func(Rule) error { return s.Store.RenameIf(ctx, old, newName, is, replaces) })
}

func (s *store) RemoveTree(ctx context.Context, name string) error {
	return s.call(ctx, "remove", name, func(Rule) error { return s.Store.RemoveTree(ctx, name) })
}

func (s *store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	return s.call(ctx, "put", name, func(Rule) error { return s.Store.MakeDir(ctx, name, opts) })
}

func (s *store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	return s.call(ctx, "put", name, func(Rule) error { return s.Store.SetMode(ctx, name, attrs) })
}

func (s *store) RemoveDir(ctx context.Context, name string) error {
	return s.call(ctx, "remove", name, func(Rule) error { return s.Store.RemoveDir(ctx, name) })
}

func (s *store) Check(ctx context.Context) error {
	return s.call(ctx, "check", "", func(Rule) error { return s.Store.Check(ctx) })
}

func (s *store) Sweep(ctx context.Context) (n int, err error) {
	err = s.call(ctx, "sweep", "", func(Rule) (err error) {
		n, err = s.Store.Sweep(ctx)
		return err
	})
	return n, err
}

// source damages the bytes of an inner source.
type source struct {
	backing.Source
	kind Kind
}

func (s *source) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	slices, err := s.Source.Slices(dst, off, n)
	if err != nil || len(slices) == len(dst) || off+n < s.Size() {
		return slices, err
	}
	last := len(slices) - 1
	if s.kind == Truncated {
		slices[last] = slices[last][:len(slices[last])-1]
		return slices, nil
	}
	damaged := append([]byte(nil), slices[last]...)
	damaged[len(damaged)-1] ^= 1
	slices[last] = damaged
	return slices, nil
}

// reader damages the bytes of an inner reader.
type reader struct {
	io.ReadCloser
	kind Kind
	done bool
}

func (r *reader) Read(p []byte) (int, error) {
	if r.done && r.kind == Truncated {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := r.ReadCloser.Read(p)
	if n == 0 || r.done {
		return n, err
	}
	r.done = true
	if r.kind == Truncated {
		return n - 1, nil
	}
	p[n-1] ^= 1
	return n, err
}
