// Package pathlock keeps the paths of requests valid: a move of a name waits for requests that use a path at or below it,
// and they wait for the move. Requests elsewhere go on. It must never depend on the tree of the names.
package pathlock

import (
	"context"
	"slices"
	"strings"
	"sync"

	"forebay/internal/bb"
)

// Lock has the paths in use and those that move. Its methods may be called concurrently. A holder must not acquire it
// again.
type Lock struct {
	mu    sync.Mutex
	uses  map[*paths]struct{}
	moves map[*paths]struct{}
	freed chan struct{} // closed at the next release that a waiter may wait for; nil: nothing waits
}

type paths []string // "" is the root

// Use resolves paths and keeps them from being moved, until release is called. It waits for moves of the paths or of
// directories above, after which it resolves them again. Its error is that of resolve, or bb.Cancelled.
func (l *Lock) Use(ctx context.Context, resolve func() ([]string, error)) (release func(), err error) {
	return l.acquire(ctx, &l.uses, resolve, func(p paths) bool { return l.any(l.moves, func(m string) bool { return p.below(m) }) })
}

// Move resolves the paths of a move, and waits until nothing uses a path at or below one of them, nor moves one that is
// related. Later uses wait until release is called. Its error is that of resolve, or bb.Cancelled.
func (l *Lock) Move(ctx context.Context, resolve func() ([]string, error)) (release func(), err error) {
	var own paths
	release, err = l.acquire(ctx, &l.moves, resolve, func(p paths) bool {
		own = p
		return l.any(l.moves, func(m string) bool { return p.below(m) || p.above(m) })
	})
	if err != nil {
		return nil, err
	}
	if err := l.unused(ctx, own); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// unused waits until nothing uses a path at or below one of own.
func (l *Lock) unused(ctx context.Context, own paths) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.any(l.uses, own.above) {
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// acquire puts resolved paths into holds as soon as they are not blocked.
func (l *Lock) acquire(ctx context.Context, holds *map[*paths]struct{}, resolve func() ([]string, error), blocked func(paths) bool) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		p, err := resolve()
		if err != nil {
			return nil, err
		}
		own := paths(p)
		if !blocked(own) {
			if *holds == nil {
				*holds = map[*paths]struct{}{}
			}
			(*holds)[&own] = struct{}{}
			return func() { l.release(*holds, &own) }, nil
		}
		if err := l.wait(ctx); err != nil {
			return nil, err
		}
	}
}

func (l *Lock) release(holds map[*paths]struct{}, own *paths) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(holds, own)
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// wait waits for a release. l.mu is locked before and afterwards.
func (l *Lock) wait(ctx context.Context) error {
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	freed := l.freed
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return bb.Cancelled
	}
}

// any reports whether a path of holds is so. l.mu is locked.
func (l *Lock) any(holds map[*paths]struct{}, is func(string) bool) bool {
	for p := range holds {
		if slices.ContainsFunc(*p, is) {
			return true
		}
	}
	return false
}

// below reports whether one of the paths is a path or lies below it.
func (p paths) below(dir string) bool {
	return slices.ContainsFunc(p, func(p string) bool { return inside(p, dir) })
}

// above reports whether one of the paths is a path or leads to it.
func (p paths) above(path string) bool {
	return slices.ContainsFunc(p, func(dir string) bool { return inside(path, dir) })
}

func inside(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || dir == "" || rest[0] == '/')
}
