package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

// sought is the condition of find: an entry that has all of it. Zero values require nothing.
type sought struct {
	names, paths []string // patterns of the name, of the path below the start: one of each
	fold         bool     // the case of names does not matter
	kind         string   // f, d or l
	states       []string
	over, under  int64 // bytes; -1: any
	newer, older time.Time
}

// has reports whether an entry is sought. Below is its path below the start.
func (q *sought) has(e *client.Entry, below string) bool {
	fold := func(s string) string { return s }
	if q.fold {
		fold = strings.ToLower
	}
	one := func(patterns []string, name string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return doublestar.MatchUnvalidated(fold(p), fold(name)) })
	}
	switch {
	case !one(q.names, e.Name), !one(q.paths, below):
		return false
	case q.kind == "f" && !e.IsFile(), q.kind == "d" && !e.IsDir(), q.kind == "l" && e.Type != client.TypeSymlink:
		return false
	case len(q.states) > 0 && (!e.IsFile() || !slices.Contains(q.states, e.State.String())):
		return false
	case (q.over >= 0 || q.under >= 0) && !e.IsFile():
		return false
	case q.over >= 0 && e.Size <= q.over, q.under >= 0 && e.Size >= q.under:
		return false
	case !q.newer.IsZero() && !e.ModTime.After(q.newer), !q.older.IsZero() && !e.ModTime.Before(q.older):
		return false
	}
	return true
}

// check refuses conditions that no entry can meet.
func (q *sought) check() error {
	for _, p := range slices.Concat(q.names, q.paths) {
		if !doublestar.ValidatePattern(p) {
			return app.Usage(fmt.Sprintf("%q is no pattern", p))
		}
	}
	states := StateNames()
	for _, s := range q.states {
		if !slices.Contains(states, s) {
			return app.Usage("--state is one of " + strings.Join(states, ", ") + "; not " + s)
		}
	}
	if !slices.Contains([]string{"", "f", "d", "l"}, q.kind) {
		return app.Usage("--type is f (files), d (directories) or l (symbolic links); not " + q.kind)
	}
	return nil
}

// StateNames are the states of files, as they are printed.
func StateNames() []string {
	var names []string
	for _, s := range []client.State{client.StateOpen, client.StateDirty, client.StateClean, client.StateEvicted, client.StateLost, client.StateSuperseded} {
		names = append(names, s.String())
	}
	return names
}

func newFindCommand(a *app.App) *cobra.Command {
	var q sought
	var over, under, newer, older string
	var depth int
	var l lister
	cmd := &cobra.Command{
		Use: "find bb://BUFFER[/PATH]…", Short: "Find files and directories by name, size, age or state", Args: cobra.MinimumNArgs(1),
		Long: `Prints the addresses of the entries at and below each path that meet all conditions. Of several
--name, --path or --state one is enough. In a pattern, *, ?, [a-z] and {a,b} match within a name, ** across
directories.`,
		Example: "  bbctl find bb://ckpt --name '*.tmp' --older 1h\n  bbctl find bb://ckpt --state dirty --over 1GiB\n  bbctl find -0 bb://ckpt --name 'step-*' | xargs -0 bbctl rm --no-glob",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.over, q.under, err = sizes(over, under); err == nil {
				q.newer, q.older, err = times(newer, older, time.Now())
			}
			if err == nil {
				err = q.check()
			}
			if err != nil {
				return err
			}
			return a.EachMatch(cmd.Context(), "find", args, func(at app.Found, _ bool) error {
				s := &app.Several{What: "find"}
				for e, err := range at.Walk(cmd.Context(), at.At.Path) {
					below := app.BelowOf(e.Path, at.At.Path)
					switch {
					case err != nil:
						s.Note(err)
					case depth >= 0 && below != "" && strings.Count(below, "/") >= depth:
					case q.has(&e, below):
						s.Note(nil)
						if err := l.printAddress(a, at.At.Buffer, &e); err != nil {
							return err
						}
					}
				}
				return s.Finish(a)
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&q.names, "name", nil, "the last name matches this pattern")
	f.BoolVarP(&q.fold, "ignore-case", "i", false, "upper and lower case are the same in patterns")
	f.StringArrayVar(&q.paths, "path", nil, "the path below the one given matches this pattern")
	f.StringVar(&q.kind, "type", "", "f: files; d: directories; l: symbolic links")
	f.StringSliceVar(&q.states, "state", nil, "files in this state: "+strings.Join(StateNames(), ", "))
	f.StringVar(&over, "over", "", "files of more bytes than this, such as 1GiB")
	f.StringVar(&under, "under", "", "files of fewer bytes than this")
	f.StringVar(&newer, "newer", "", "changed less than so long ago, such as 90m or 7d, or after this time (RFC 3339)")
	f.StringVar(&older, "older", "", "changed longer ago than this, or before this time")
	f.IntVar(&depth, "depth", -1, "at most so many directories below the path (default: all)")
	f.BoolVarP(&l.zero, "zero", "0", false, "addresses as they are, each ended by a NUL byte, for xargs -0")
	return cmd
}

// sizes reads the bounds of a size. -1 stands for none.
func sizes(over, under string) (low, high int64, err error) {
	low, high = -1, -1
	if over != "" {
		low, err = app.ParseSize("--over", over)
	}
	if under != "" && err == nil {
		high, err = app.ParseSize("--under", under)
	}
	return low, high, err
}

// times reads the bounds of a time. Zero stands for none.
func times(newer, older string, now time.Time) (after, before time.Time, err error) {
	if after, err = parseTime("--newer", newer, now); err == nil {
		before, err = parseTime("--older", older, now)
	}
	return after, before, err
}

// parseTime reads a time, or how long ago one was. "" means none.
func parseTime(what, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	day, scale := text, time.Duration(1)
	if n, ok := strings.CutSuffix(text, "d"); ok {
		day, scale = n+"h", 24
	}
	if d, err := time.ParseDuration(day); err == nil && d >= 0 {
		return now.Add(-d * scale), nil
	}
	return time.Time{}, &client.Error{
		Kind: client.ErrInvalid, Op: what, Path: fmt.Sprintf("%q", text), Err: errors.New("not a time"),
		Remedy: "write 90m, 12h, 7d or 2026-11-30T12:00:00Z",
	}
}

// printAddress prints where an entry is.
func (l *lister) printAddress(a *app.App, buffer string, e *client.Entry) error {
	address := client.Address{Buffer: buffer, Path: e.Path}.String()
	return a.Print(DescribeEntry(e), func() {
		if l.zero {
			fmt.Fprint(a.Out, address, "\x00")
		} else {
			fmt.Fprintln(a.Out, bb.Printable(address))
		}
	})
}
