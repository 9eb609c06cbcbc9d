package copying

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"forebay/cmd/bbctl/app"
)

const filterHelp = `--include and --exclude take patterns, as rsync does: of those that match a path below the directory, the
first one decides. Paths that none matches are included. A pattern without a slash is of the last name, another
one of the whole path. One that ends in a slash is of directories alone. Files in an excluded directory are
excluded.`

// filter selects paths of a tree.
type filter struct{ rules []rule }

type rule struct {
	pattern  string
	whole    bool // of the whole path; else of its last name
	dirsOnly bool
	include  bool
}

// wants reports whether a path below the directory that is copied is included, if its parent
// is.
func (f *filter) wants(below string, dir bool) bool {
	for _, r := range f.rules {
		name := path.Base(below)
		if r.whole {
			name = below
		}
		if (dir || !r.dirsOnly) && doublestar.MatchUnvalidated(r.pattern, name) {
			return r.include
		}
	}
	return true
}

// walker returns a function that reports whether an entry is included, which is called with
// each directory before its entries.
func (f *filter) walker() func(below string, dir bool) bool {
	excluded := "" // the last directory that was, with a slash
	return func(below string, dir bool) bool {
		switch {
		case below == "":
			return true
		case excluded != "" && strings.HasPrefix(below, excluded):
			return false
		case f.wants(below, dir):
			return true
		case dir:
			excluded = below + "/"
		}
		return false
	}
}

// flag is the value of --include or --exclude. Both add to one list, in the order in which they are
// given.
type ruleFlag struct {
	f       *filter
	include bool
}

func (r ruleFlag) String() string { return "" }
func (r ruleFlag) Type() string   { return "pattern" }

func (r ruleFlag) Set(text string) error {
	pattern, dirsOnly := strings.CutSuffix(text, "/")
	whole := strings.Contains(pattern, "/")
	pattern = strings.TrimPrefix(pattern, "/")
	if pattern == "" || !doublestar.ValidatePattern(pattern) {
		return fmt.Errorf("%q is no pattern", text)
	}
	r.f.rules = append(r.f.rules, rule{pattern, whole, dirsOnly, r.include})
	return nil
}

// limits are the flags of commands that copy trees.
type limits struct {
	filter
	rate string
}

func (l *limits) flags(cmd *cobra.Command) {
	cmd.Flags().Var(ruleFlag{&l.filter, true}, "include", "copy names that match this pattern, even if a later one excludes them")
	cmd.Flags().Var(ruleFlag{&l.filter, false}, "exclude", "leave out names that match this pattern, unless an earlier --include does")
	cmd.Flags().StringVar(&l.rate, "limit-rate", "", "at most so many bytes a second, such as 100MiB")
}

// apply makes a transfer keep to the flags.
func (l *limits) apply(t *transfer) error {
	t.filter = &l.filter
	if l.rate == "" {
		return nil
	}
	n, err := app.ParseSize("--limit-rate", l.rate)
	if err == nil && n == 0 {
		err = app.Usage("--limit-rate is at least a byte a second")
	}
	t.limit = newLimit(n)
	return err
}

// limitBurst is how many bytes pass at once, at most: one piece of a copy.
const limitBurst = 1 << 20

func newLimit(bytes int64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(bytes), int(min(max(bytes/10, 1), limitBurst)))
}

// pass waits until n bytes may pass.
func pass(ctx context.Context, l *rate.Limiter, n int) error {
	for l != nil && n > 0 {
		some := min(n, l.Burst())
		if err := l.WaitN(ctx, some); err != nil {
			return err
		}
		n -= some
	}
	return nil
}
