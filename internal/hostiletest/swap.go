package hostiletest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/powertest"
)

// A check of a path and its use are two walks of it. Between two walks a user may replace a directory
// of the path with a link. A race between them meets that moment now and then. Here it is met each
// time. The directory lies in a file system that replaces it after so many lookups of its name, and
// the attack is made with each number of them.

// linkToRoots is the name of the link in that file system.
const linkToRoots = "link"

// swapAfter is the name whose lookup arms a directory. After so many lookups more, its name leads to
// the link.
func swapAfter(dir string, lookups int) string { return fmt.Sprint(dir, "@", lookups) }

// mountSwaps mounts the file system, with a link to root's directory.
func mountSwaps(tb testing.TB, dir, roots string) string {
	tb.Helper()
	at := filepath.Join(dir, "swaps")
	if err := os.Mkdir(at, 0o755); err != nil {
		tb.Fatal(err)
	}
	fs := powertest.Mount(tb, at)
	if err := os.Symlink(roots, filepath.Join(at, linkToRoots)); err != nil {
		tb.Fatal(err)
	}
	left := map[string]int{} // lookups, by armed directory
	fs.Redirect(func(name string) string {
		if dir, text, ok := strings.Cut(name, "@"); ok {
			if n, err := strconv.Atoi(text); err == nil {
				left[dir] = n
			}
			return name
		}
		switch n, armed := left[name]; {
		case !armed:
			return name
		case n == 0:
			return linkToRoots
		}
		left[name]--
		return name
	})
	return at
}

// maxLookups is more than the lookups of one directory in a stage-in or a stage-out.
const maxLookups = 200

// changingDirectory stages in from, and out to, a directory that is replaced after each number of
// lookups, until the last lookup of all finds it in its place.
func (a *attacker) changingDirectory() error {
	if err := a.fillOut(); err != nil {
		return err
	}
	for what, use := range map[string]func(dir string) (failure, err error){
		"stage-in":  func(dir string) (failure, err error) { return a.stageIn(fileURL(filepath.Join(dir, "existing"))) },
		"stage-out": a.stageOut,
	} {
		whole := false
		for n := 0; !whole; n++ {
			if n == maxLookups {
				return fmt.Errorf("%s: the directory is looked up more than %d times", what, n)
			}
			var err error
			if whole, err = a.swapDuring(n, use); err != nil {
				return fmt.Errorf("%s, after %d lookups: %w", what, n, err)
			}
		}
	}
	return nil
}

// swapDuring replaces a directory after so many lookups. It reports whether the use needed no more.
func (a *attacker) swapDuring(lookups int, use func(dir string) (failure, err error)) (whole bool, err error) {
	name := a.name("swapped")
	dir := filepath.Join(a.Swaps, name)
	own := []byte(strings.Repeat("x", len(rootsWords)))
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "existing"), own, 0o644)); err != nil {
		return false, err
	}
	if _, err := os.Lstat(filepath.Join(a.Swaps, swapAfter(name, lookups))); !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("arming %s: %w", dir, err)
	}
	failure, err := use(dir)
	for _, kind := range []error{client.ErrBusy, client.ErrNoSpace, client.ErrLost, client.ErrChecksum} {
		if err == nil && errors.Is(failure, kind) {
			err = fmt.Errorf("%w: %w", errVoid, failure) // there is no memory for the attacker, or it has spoilt its own
		}
	}
	if err != nil || failure != nil {
		return false, err
	}
	info, err := os.Lstat(dir) // a lookup more than the use needed
	return err == nil && info.IsDir(), err
}

// outDir is the directory of the attacker's buffer that is staged out.
const outDir = "out"

// fillOut writes the files that are staged out.
func (a *attacker) fillOut() error {
	ctx, cancel := a.within()
	defer cancel()
	b := a.scratch()
	if err := b.MkdirAll(ctx, outDir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"existing", "planted"} {
		if err := a.put(ctx, b, outDir+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// stageOut stages these files out to a directory. It fails if one of them came to lie in root's.
func (a *attacker) stageOut(dir string) (failure, err error) {
	ctx, cancel := a.within()
	defer cancel()
	report, failure := admin.StageOut(ctx, a.c, admin.StageRequest{Buffer: scratchBuffer, Path: outDir, URL: fileURL(dir)}, nil)
	if ctx.Err() != nil {
		return failure, fmt.Errorf("a stage-out to %s is not answered: %v", dir, failure)
	}
	if failure == nil && len(report.Failed) > 0 {
		failure = report.Failed[0].Kind
	}
	if info, err := os.Stat(filepath.Join(a.Roots, "existing")); err != nil || info.Size() != int64(len(rootsWords)) {
		return failure, fmt.Errorf("a stage-out to %s has written over root's file: %v, %w", dir, info, err)
	}
	if _, err := os.Lstat(filepath.Join(a.Roots, "planted")); !errors.Is(err, os.ErrNotExist) {
		return failure, fmt.Errorf("a stage-out to %s has put a file into root's directory: %w", dir, err)
	}
	return failure, nil
}
