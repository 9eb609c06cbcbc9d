package app

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"forebay/client"
)

const GlobHelp = `A path may be a pattern: *, ?, [a-z] and {a,b} match within a name, ** across
directories; a backslash makes the next character literal, and --no-glob all of them. A file of
exactly that name comes before the matches of the pattern.`

// Found is an entry of a buffer that an argument stands for.
type Found struct {
	*client.Buffer
	At client.Address
}

// match returns the paths of an argument: the path itself, or, if that is a pattern and no entry's
// name, all its matches, in order.
func (a *App) match(ctx context.Context, arg string) ([]Found, error) {
	b, at, err := a.Buffer(ctx, arg)
	if err != nil {
		return nil, err
	}
	itself := []Found{{Buffer: b, At: at}}
	if a.NoGlob || !strings.ContainsAny(at.Path, `*?[{\`) {
		return itself, nil
	}
	if _, err := b.Stat(ctx, at.Path); client.KindOf(err) != client.ErrNotFound {
		return itself, err
	}
	names, err := doublestar.Glob(b.FS(ctx), at.Path, doublestar.WithFailOnIOErrors())
	switch {
	case errors.Is(err, doublestar.ErrBadPattern):
		return nil, &client.Error{Kind: client.ErrInvalid, Op: "match", Path: at.String(), Err: err, Remedy: "put a backslash before characters that are no pattern, or give --no-glob"}
	case err != nil:
		return nil, err
	case len(names) == 0:
		return nil, &client.Error{Kind: client.ErrNotFound, Op: "match", Path: at.String(), Err: errors.New("no name matches the pattern"), Remedy: "see bbctl ls"}
	}
	slices.Sort(names)
	all := make([]Found, len(names))
	for i, name := range names {
		all[i] = Found{Buffer: b, At: client.Address{Buffer: at.Buffer, Path: name}}
	}
	return all, nil
}

// MatchAll returns the paths of several arguments. It notes failures in s.
func (a *App) MatchAll(ctx context.Context, s *Several, args []string) ([]Found, error) {
	var all []Found
	for _, arg := range args {
		some, err := a.match(ctx, arg)
		switch {
		case ctx.Err() != nil:
			return nil, err
		case err != nil:
			s.Note(err)
		}
		if client.KindOf(err) == client.ErrUnavailable && a.client == nil {
			break // there is no daemon
		}
		all = append(all, some...)
	}
	return all, nil
}

// EachMatch does something to each entry that arguments stand for. A failure of one does not keep
// the others from being done.
func (a *App) EachMatch(ctx context.Context, what string, args []string, do func(at Found, several bool) error) error {
	s := &Several{What: what}
	all, err := a.MatchAll(ctx, s, args)
	if err != nil {
		return err
	}
	for _, at := range all {
		if err := do(at, len(all) > 1); ctx.Err() != nil {
			return err
		} else {
			s.Note(err)
		}
	}
	return s.Finish(a)
}
