package pathlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"forebay/internal/bb"
)

func at(paths ...string) func() ([]string, error) {
	return func() ([]string, error) { return paths, nil }
}

// TestLock has one holder, and a second request that has to wait for it or not.
func TestLock(t *testing.T) {
	for _, x := range []struct {
		held, wanted         []string
		heldMoves, wantMoves bool
		waits                bool
	}{
		{held: []string{"a"}, wanted: []string{"a"}},
		{held: []string{"a"}, wanted: []string{"a", "b"}, wantMoves: true, waits: true},
		{held: []string{"a/b/c"}, wanted: []string{"a", "b"}, wantMoves: true, waits: true},
		{held: []string{"x", "a/b/c"}, wanted: []string{"b", "a/b"}, wantMoves: true, waits: true},
		{held: []string{"a"}, wanted: []string{"a/b", "c"}, wantMoves: true},
		{held: []string{""}, wanted: []string{"a", "b"}, wantMoves: true},
		{held: []string{"ab", "abc/d"}, wanted: []string{"a", "b"}, wantMoves: true},
		{held: []string{"a", "b"}, heldMoves: true, wanted: []string{"a"}, waits: true},
		{held: []string{"a", "b"}, heldMoves: true, wanted: []string{"x", "b/c/d"}, waits: true},
		{held: []string{"a", "b"}, heldMoves: true, wanted: []string{""}},
		{held: []string{"a/b", "c"}, heldMoves: true, wanted: []string{"a", "a/c", "a/bc"}},
		{held: []string{"a", "b"}, heldMoves: true, wanted: []string{"c", "d"}, wantMoves: true},
		{held: []string{"a", "b"}, heldMoves: true, wanted: []string{"c", "b/d"}, wantMoves: true, waits: true},
		{held: []string{"a/b", "c"}, heldMoves: true, wanted: []string{"a", "d"}, wantMoves: true, waits: true},
		{held: []string{"a/b", "c"}, heldMoves: true, wanted: []string{"a/d", "e"}, wantMoves: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l Lock
			way := func(moves bool) func(context.Context, func() ([]string, error)) (func(), error) {
				if moves {
					return l.Move
				}
				return l.Use
			}
			release, err := way(x.heldMoves)(t.Context(), at(x.held...))
			if err != nil {
				t.Fatal(err)
			}
			var has atomic.Bool
			go func() {
				release, err := way(x.wantMoves)(t.Context(), at(x.wanted...))
				if err != nil {
					t.Error(err)
				}
				has.Store(true)
				release()
			}()
			synctest.Wait()
			if has.Load() == x.waits {
				t.Errorf("%+v: it waits: %v", x, !has.Load())
			}
			release()
			synctest.Wait()
			if !has.Load() {
				t.Errorf("%+v: it waits for good", x)
			}
		})
	}
}

// TestMoved: a request that has waited for a move uses the new path, and a move that waits for one holds later ones back.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock
		name := "a"
		used, _ := l.Use(t.Context(), at("a/b"))
		ctx, cancel := context.WithCancel(t.Context())
		var got string
		begin := func() {
			go func() {
				release, err := l.Use(t.Context(), func() ([]string, error) {
					got = name + "/c"
					return []string{got}, nil
				})
				if err != nil {
					t.Error(err)
				}
				release()
			}()
			synctest.Wait()
		}
		failed := make(chan error, 1)
		go func() {
			_, err := l.Move(ctx, at("a", "x"))
			failed <- err
		}()
		synctest.Wait()
		begin()
		cancel()
		if err := <-failed; !errors.Is(err, bb.Cancelled) {
			t.Errorf("the cancelled move: %v", err)
		}
		synctest.Wait()
		if got != "a/c" {
			t.Errorf("after the cancelled move: %q", got)
		}
		used()
		moved, err := l.Move(t.Context(), at("a", "x"))
		if err != nil {
			t.Fatal(err)
		}
		begin()
		l.mu.Lock()
		name = "x"
		l.mu.Unlock()
		moved()
		synctest.Wait()
		if got != "x/c" {
			t.Errorf("after the move: %q", got)
		}
		for _, way := range []func(context.Context, func() ([]string, error)) (func(), error){l.Use, l.Move} {
			if _, err := way(t.Context(), func() ([]string, error) { return nil, syscall.ESTALE }); err != syscall.ESTALE {
				t.Errorf("a path that is gone: %v", err)
			}
		}
		if len(l.uses)+len(l.moves) != 0 {
			t.Errorf("%d uses and %d moves are left", len(l.uses), len(l.moves))
		}
	})
}

// TestMany: moves and uses of related paths all come to their turn, and no use meets a move of its path.
func TestMany(t *testing.T) {
	var l Lock
	var all sync.WaitGroup
	var moving [4]atomic.Bool
	for i := range 8 {
		all.Go(func() {
			for round := range 500 {
				a, b := (i+round)%4, (i+round/3+1)%4
				if i%2 == 0 {
					release, err := l.Use(t.Context(), at(fmt.Sprintf("d%d/f", a)))
					if err != nil || moving[a].Load() {
						t.Errorf("a use meets a move (%v)", err)
					}
					release()
					continue
				}
				release, err := l.Move(t.Context(), at(fmt.Sprint("d", a), fmt.Sprint("d", b)))
				if err != nil || moving[a].Swap(true) || a != b && moving[b].Swap(true) {
					t.Errorf("two moves meet (%v)", err)
				}
				moving[a].Store(false)
				moving[b].Store(false)
				release()
			}
		})
	}
	all.Wait()
}
