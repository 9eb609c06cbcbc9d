package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"forebay/client/admin"
)

// The last part shows programs that know nothing of Forebay: tar and the Go toolchain, on a mount.

const mountedName = "sources"

func (d *demo) mountPoint() string { return filepath.Join(d.dir, "bb") }

// cannotMount returns the reason why nothing can be mounted here, or "".
func (d *demo) cannotMount() string {
	_, helper := exec.LookPath("fusermount3")
	switch _, err := os.Stat("/dev/fuse"); {
	case err != nil:
		return "there is no /dev/fuse (modprobe fuse)"
	case os.Geteuid() != 0 && helper != nil:
		return "mounting needs root, or fusermount3 (package fuse3)"
	}
	return ""
}

// mount mounts a buffer, unpacks Forebay's own sources there, and builds bbctl in them.
func (d *demo) mount(ctx context.Context) error {
	if why := d.cannotMount(); why != "" {
		say("\nNot shown, as %s: a buffer as a file system (docs/mount.md)", why)
		return nil
	}
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: mountedName}); err != nil {
		return err
	}
	archive, beside, tree := filepath.Join(d.dir, "sources.tar"), filepath.Join(d.dir, "beside"), filepath.Join(d.mountPoint(), "forebay")
	pack := []string{"tar", "-cf", archive}
	for _, not := range []string{".git", ".cache", "bin", "dist", "sdk"} {
		pack = append(pack, "--exclude=./"+not)
	}
	if _, err := d.timed(ctx, ".", append(pack, ".")...); err != nil {
		return err
	}
	for _, dir := range []string{d.mountPoint(), beside} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if _, err := d.timed(ctx, ".", d.bbctl("mount", "bb://"+mountedName, d.mountPoint())...); err != nil {
		return err
	}
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	there, err := d.timed(ctx, tree, "tar", "-xf", archive)
	if err != nil {
		return err
	}
	local, err := d.timed(ctx, beside, "tar", "-xf", archive)
	if err != nil {
		return err
	}
	say("\nMounted as a file system; tar -x of Forebay's sources, %d files: %s  (%s into the directory)", filesIn(tree), seconds(there), strings.TrimSpace(seconds(local)))
	if _, err := d.timed(ctx, ".", "diff", "-r", beside, tree); err != nil {
		return err
	}
	took, err := d.timed(ctx, tree, "go", "build", "-o", "bbctl", "./cmd/bbctl")
	if err != nil {
		return err
	}
	if _, err := d.timed(ctx, tree, "./bbctl", "--version"); err != nil {
		return err
	}
	say("All of them are equal, and bbctl was built among them, and runs:  %s", seconds(took))
	return nil
}

// unmount ends the mount, if there is one.
func (d *demo) unmount() error {
	if _, err := os.Lstat(d.mountPoint()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := exec.Command(d.bbctl()[0], "umount", "--lazy", d.mountPoint()).CombinedOutput()
	if err != nil && !strings.Contains(string(text), "no buffer is mounted there") {
		return fmt.Errorf("unmounting %s: %w: %s", d.mountPoint(), err, text)
	}
	return nil
}

// bbctl returns a command line.
func (d *demo) bbctl(args ...string) []string {
	program, err := filepath.Abs(filepath.Join(d.bin, "bbctl"))
	if err != nil {
		program = "bbctl" // the working folder is gone
	}
	return append([]string{program, "--socket", d.socket()}, args...)
}

// timed runs a program in a folder.
func (d *demo) timed(ctx context.Context, dir string, args ...string) (time.Duration, error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, text)
	}
	return time.Since(began), err
}

func filesIn(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}
