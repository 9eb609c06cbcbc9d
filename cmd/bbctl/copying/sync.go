package copying

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/checksum"
)

func newSyncCommand(a *app.App) *cobra.Command {
	var o syncOptions
	cmd := &cobra.Command{
		Use: "sync FILE|bb://BUFFER[/PATH] FILE|bb://BUFFER[/PATH]", Short: "Make one directory like another", Args: cobra.ExactArgs(2),
		Long: `Copies files from the first directory to the second that are not there, or differ in size or time, with
modes and times; with --delete, files that the first one lacks are removed from the second. One of them or both are
in a buffer, which a path below a mount is, too. Excluded files are neither copied nor removed.

` + filterHelp,
		Example: "  bbctl sync results bb://out/results --exclude '*.tmp'\n  bbctl sync --delete --dry-run bb://out/results results",
		RunE: func(cmd *cobra.Command, args []string) error {
			return sync(cmd.Context(), a, args[0], args[1], o)
		},
	}
	cmd.Flags().BoolVar(&o.delete, "delete", false, "remove names that the first directory lacks")
	cmd.Flags().BoolVarP(&o.sums, "checksum", "c", false, "compare contents by their checksums, not times")
	cmd.Flags().BoolVarP(&o.dryRun, "dry-run", "n", false, "only list the steps")
	cmd.Flags().IntVarP(&o.workers, "jobs", "j", runtime.GOMAXPROCS(0), "files at the same time")
	o.flags(cmd)
	return cmd
}

type syncOptions struct {
	delete, sums, dryRun bool
	workers              int
	limits
}

// item is an entry of one of two trees.
type item struct {
	dir  bool
	size int64
	mode fs.FileMode
	when time.Time
	sum  func() (uint64, error) // CRC-64/NVME of the content
	put  func(t *transfer, to string)
}

// tree is a directory that is compared with another one, and changed.
type tree interface {
	// list returns the entries below the directory by path, or nothing if there is no directory.
	list(ctx context.Context, f *filter, s *app.Several) (map[string]item, error)
	// address is the name of a path below the directory.
	address(below string) string
	mkdir(t *transfer, below string, d item) error
	remove(ctx context.Context, below string) error
	settle(ctx context.Context, below string, mode fs.FileMode, when time.Time) error
}

// step is one thing to do so that one tree becomes like another.
type step struct {
	do    string // mkdir, copy, settle (mode and time), remove
	below string
}

// compare decides the changes that make to equal to from: directories before their entries,
// removals first and from the bottom up. Same reports whether two files have the same content.
func compare(from, to map[string]item, remove bool, same func(below string) (bool, error)) (steps []step, failed []error) {
	for below, there := range to {
		if want, ok := from[below]; remove && (!ok || want.dir != there.dir) {
			steps = append(steps, step{"remove", below})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(b.below, a.below) })
	var names []string
	for below := range from {
		if below != "" {
			names = append(names, below)
		}
	}
	slices.Sort(names)
	for _, below := range names {
		want := from[below]
		there, ok := to[below]
		switch {
		case ok && want.dir != there.dir && !remove:
			failed = append(failed, &client.Error{Kind: client.ErrExists, Op: "sync", Path: below, Err: errors.New("a file is in the place of a directory, or the reverse"), Remedy: "give --delete"})
		case want.dir:
			steps = append(steps, step{"mkdir", below})
		case !ok || there.dir || want.size != there.size:
			steps = append(steps, step{"copy", below})
		default:
			equal, err := same(below)
			switch {
			case err != nil:
				failed = append(failed, err)
			case !equal:
				steps = append(steps, step{"copy", below})
			case want.mode != there.mode || !want.when.Equal(there.when):
				steps = append(steps, step{"settle", below})
			}
		}
	}
	return steps, failed
}

// sync makes one directory like another.
func sync(ctx context.Context, a *app.App, source, target string, o syncOptions) error {
	from, err := treeOf(ctx, a, source)
	if err != nil {
		return err
	}
	to, err := treeOf(ctx, a, target)
	if err != nil {
		return err
	}
	buffer := cmp.Or(bufferOf(to), bufferOf(from))
	if buffer == nil {
		return app.Usage("neither is a directory of a buffer; rsync is for local ones")
	}
	t := newTransfer(ctx, a, "sync", buffer, o.workers)
	t.dryRun = o.dryRun
	if err := o.apply(t); err != nil {
		return err
	}
	have, there, err := t.both(from, to)
	if err != nil {
		return err
	}
	if o.delete && t.Several.Count > 0 {
		o.delete = false
		t.note(&client.Error{Kind: client.ErrBusy, Op: "sync", Path: target, Err: errors.New("nothing is removed, since not all of " + source + " was read")})
	}
	steps, failed := compare(have, there, o.delete, func(below string) (bool, error) {
		if !o.sums {
			return have[below].when.Equal(there[below].when), nil
		}
		want, err := have[below].sum()
		if err != nil {
			return false, err
		}
		got, err := there[below].sum()
		return got == want, err
	})
	for _, err := range failed {
		t.note(err)
	}
	if there == nil {
		steps = append([]step{{"mkdir", ""}}, steps...)
	}
	return t.follow(steps, from, to, have)
}

// both lists two trees, of which the first one is there.
func (t *transfer) both(from, to tree) (have, there map[string]item, err error) {
	if have, err = from.list(t.ctx, t.filter, t.Several); err != nil {
		return nil, nil, err
	}
	if have == nil {
		return nil, nil, &client.Error{Kind: client.ErrNotFound, Op: "sync", Path: from.address(""), Err: errors.New("there is no such directory")}
	}
	there, err = to.list(t.ctx, t.filter, t.Several)
	have[""] = item{dir: true, mode: 0o755, when: time.Now()} // of a directory that is made
	return have, there, err
}

// follow carries steps out.
func (t *transfer) follow(steps []step, from, to tree, have map[string]item) error {
	for _, s := range steps {
		if t.Over() {
			break
		}
		if err := t.followOne(s, from, to, have[s.below]); err != nil {
			t.note(err)
		}
	}
	return t.finish()
}

func (t *transfer) followOne(s step, from, to tree, want item) error {
	switch {
	case t.dryRun && s.do == "remove":
		return t.a.Would("remove", to.address(s.below), "", 0)
	case t.dryRun && s.do == "copy":
		return t.a.Would("copy", from.address(s.below), to.address(s.below), want.size)
	case t.dryRun:
		return nil
	case s.do == "remove":
		return to.remove(t.ctx, s.below)
	case s.do == "mkdir":
		return to.mkdir(t, s.below, want)
	case s.do == "settle":
		return to.settle(t.ctx, s.below, want.mode, want.when)
	}
	want.put(t, to.address(s.below))
	return nil
}

// tree returns the tree of an argument.
func treeOf(ctx context.Context, a *app.App, arg string) (tree, error) {
	at, inside, err := a.InBuffer(ctx, arg)
	switch {
	case err != nil:
		return nil, err
	case !inside:
		return localTree{filepath.Clean(arg)}, nil
	}
	c, err := a.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return bufferTree{c.Buffer(at.Buffer), at}, nil
}

// bufferOf returns the buffer that a tree lies in, or nil if there is none.
func bufferOf(t tree) *client.Buffer {
	if b, ok := t.(bufferTree); ok {
		return b.Buffer
	}
	return nil
}

// bufferTree is a directory of a buffer.
type bufferTree struct {
	*client.Buffer
	at client.Address
}

func (b bufferTree) path(below string) string { return path.Join(b.at.Path, below) }

func (b bufferTree) address(below string) string { return b.at.Join(below).String() }

func (b bufferTree) list(ctx context.Context, f *filter, s *app.Several) (map[string]item, error) {
	root, err := b.Stat(ctx, b.at.Path)
	switch {
	case client.KindOf(err) == client.ErrNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case !root.IsDir():
		return nil, &client.Error{Kind: client.ErrNotDirectory, Op: "sync", Path: b.at.String(), Err: errors.New("it is a file"), Remedy: "bbctl cp, put and get copy files"}
	}
	items, wants := map[string]item{}, f.walker()
	for e, err := range b.Walk(ctx, b.at.Path) {
		below := app.BelowOf(e.Path, b.at.Path)
		if err != nil {
			return nil, err
		}
		if below == "" || !wants(below, e.IsDir()) {
			continue
		}
		items[below] = item{
			dir: e.IsDir(), size: e.Size, mode: e.Mode.Perm(), when: e.ModTime,
			sum: func() (uint64, error) { return e.Checksum, nil },
			put: func(t *transfer, to string) { b.copyTo(t, &e, to) },
		}
	}
	return items, nil
}

// copyTo copies a file of the buffer to another one's, or to a local file.
func (b bufferTree) copyTo(t *transfer, e *client.Entry, to string) {
	at, err := client.ParseAddress(to)
	if err != nil {
		t.get(e, to)
		return
	}
	(&copying{transfer: t}).copyFile(b.Buffer, e, at.Path)
}

func (b bufferTree) mkdir(t *transfer, below string, d item) error {
	if b.path(below) == "" {
		return nil
	}
	return t.putDir(b.path(below), d.mode, d.when)
}

func (b bufferTree) remove(ctx context.Context, below string) error {
	return b.Remove(ctx, b.path(below))
}

func (b bufferTree) settle(ctx context.Context, below string, mode fs.FileMode, when time.Time) error {
	_, err := b.SetAttr(ctx, b.path(below), client.Attr{Mode: &mode, ModTime: &when})
	return err
}

// localTree is a local directory.
type localTree struct{ dir string }

func (l localTree) address(below string) string {
	return filepath.Join(l.dir, filepath.FromSlash(below))
}

func (l localTree) list(_ context.Context, f *filter, s *app.Several) (map[string]item, error) {
	root, err := os.Stat(l.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !root.IsDir():
		return nil, &client.Error{Kind: client.ErrNotDirectory, Op: "sync", Path: l.dir, Err: errors.New("it is a file"), Remedy: "bbctl cp, put and get copy files"}
	}
	items, wants := map[string]item{}, f.walker()
	err = filepath.WalkDir(l.dir, func(p string, e fs.DirEntry, err error) error {
		below, relErr := filepath.Rel(l.dir, p)
		if err = cmp.Or(err, relErr); err != nil {
			s.Note(err)
			return nil
		}
		if below = filepath.ToSlash(below); below == "." {
			return nil
		}
		if !wants(below, e.IsDir()) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := e.Info()
		switch {
		case err != nil:
			s.Note(err)
		case !e.IsDir() && !info.Mode().IsRegular():
			s.Note(&client.Error{Kind: client.ErrUnsupported, Op: "sync", Path: p, Err: errors.New("it is neither a file nor a directory")})
		default:
			items[below] = localItem(p, info)
		}
		return nil
	})
	return items, err
}

func localItem(p string, info fs.FileInfo) item {
	return item{
		dir: info.IsDir(), size: info.Size(), mode: info.Mode().Perm(), when: info.ModTime(),
		sum: func() (uint64, error) { return sumOf(p) },
		put: func(t *transfer, to string) {
			at, err := client.ParseAddress(to)
			if err != nil {
				t.note(err)
				return
			}
			t.put(p, at.Path, info)
		},
	}
}

// sumOf returns the CRC-64/NVME of a local file.
func sumOf(p string) (uint64, error) {
	f, err := os.Open(p)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sum, piece := uint64(0), make([]byte, 1<<20)
	for {
		n, err := f.Read(piece)
		sum = checksum.Update(sum, piece[:n])
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

func (l localTree) mkdir(t *transfer, below string, d item) error {
	return t.getDir(&client.Entry{Path: cmp.Or(below, "."), Mode: d.mode, ModTime: d.when}, l.address(below))
}

func (l localTree) remove(_ context.Context, below string) error { return os.Remove(l.address(below)) }

func (l localTree) settle(_ context.Context, below string, mode fs.FileMode, when time.Time) error {
	if err := os.Chmod(l.address(below), mode); err != nil {
		return err
	}
	return os.Chtimes(l.address(below), when, when)
}
