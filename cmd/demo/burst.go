package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/client"
	"forebay/client/admin"
)

// burst is a set of files like a job's: many small ones, a few large ones.
type burst struct {
	tree    string
	content []byte // of the tree's files, one after the other
	files   []file
	bytes   int64
}

// file is one file of the burst: content from an offset on, round and round.
type file struct {
	name    string
	size    int64
	content []byte
	offset  int64
}

// sizes are how many files there are of which size, about 2 GiB together.
var sizes = []struct {
	count int
	size  int64
}{{1024, 1 << 10}, {512, 64 << 10}, {256, 1 << 20}, {20, 16 << 20}, {3, 128 << 20}, {2, 512 << 20}}

// maxContent bounds the content that is read of the tree, in bytes.
const maxContent = 256 << 20

func newBurst(ctx context.Context, tree string) (*burst, error) {
	if tree == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("finding the Go toolchain (make demo DIR=/some/tree takes another tree): %w", err)
		}
		tree = strings.TrimSpace(string(out))
	}
	b := &burst{tree: tree}
	if err := b.load(); err != nil {
		return nil, err
	}
	for _, s := range sizes {
		for i := range s.count {
			// A prime step, so that no two files have the same content.
			offset := int64(len(b.files)) * 7_368_787 % int64(len(b.content))
			b.files = append(b.files, file{fmt.Sprintf("%dKiB-%04d", s.size>>10, i), s.size, b.content, offset})
			b.bytes += s.size
		}
	}
	return b, nil
}

// errEnough ends the walk through the tree.
var errEnough = errors.New("enough")

func (b *burst) load() error {
	err := filepath.WalkDir(b.tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b.content = append(b.content, text...)
		if len(b.content) >= maxContent {
			return errEnough
		}
		return nil
	})
	if err != nil && err != errEnough {
		return err
	}
	if len(b.content) < 1<<20 {
		return fmt.Errorf("%s holds less than 1 MiB of content", b.tree)
	}
	return nil
}

// workers is how many files are worked on at the same time, as by two ranks.
const workers = 2

// each does something with every file and returns how long that took.
func (b *burst) each(ctx context.Context, do func(file) error) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, f := range b.files {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := do(f); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			return nil
		})
	}
	err := group.Wait()
	return time.Since(began), err
}

// pieces returns a function that hands the file's content out in pieces of at most 1 MiB.
func (f file) pieces() func(func([]byte) error) error {
	return func(do func([]byte) error) error {
		at, left := f.offset, f.size
		for left > 0 {
			n := min(left, 1<<20, int64(len(f.content))-at)
			if err := do(f.content[at : at+n]); err != nil {
				return err
			}
			left -= n
			at = (at + n) % int64(len(f.content))
		}
		return nil
	}
}

// compare reads all of r and compares it with the file's content.
func (f file) compare(r io.Reader) error {
	got := make([]byte, 1<<20)
	err := f.pieces()(func(want []byte) error {
		if _, err := io.ReadFull(r, got[:len(want)]); err != nil {
			return err
		}
		if !bytes.Equal(got[:len(want)], want) {
			return errors.New("the content differs")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n, err := r.Read(got[:1]); n != 0 || err != io.EOF {
		return fmt.Errorf("it goes on after its end (%v)", err)
	}
	return nil
}

// status is the part of the daemon's status that the demo needs.
type status struct {
	Memory struct {
		Populating bool `json:"populating"`
	} `json:"memory"`
	Buffers []struct {
		Name  string `json:"name"`
		Dirty int64  `json:"dirty"`
	} `json:"buffers"`
}

func (s *status) dirty() (n int64) {
	for _, b := range s.Buffers {
		n += b.Dirty
	}
	return n
}

func daemonStatus(ctx context.Context, c *client.Client) (s status, err error) {
	text, err := admin.Status(ctx, c, "")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}
