// Command demo shows the main job on real content. A burst is handed over at memory speed, the daemon is killed
// in the middle of flushing, comes back, and everything arrives in the store, byte for byte, and is served from
// memory still. Then programs work on a mount. `make demo` runs it. It must never import a package of the daemon, since it shows the installed
// commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var d demo
	flag.StringVar(&d.bin, "bin", "bin", "folder of bbd, bbctl and bbmount")
	flag.StringVar(&d.tree, "tree", "", "tree to take content from (default: the Go toolchain's)")
	flag.Parse()
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is one run. Everything it makes lies below dir, but for the daemon's memory.
type demo struct {
	bin  string
	tree string

	dir    string
	daemon *exec.Cmd
	burst  *burst
}

const bufferName = "demo"

func (d *demo) state() string  { return filepath.Join(d.dir, "state") }
func (d *demo) store() string  { return filepath.Join(d.dir, "store") }
func (d *demo) socket() string { return filepath.Join(d.state(), "bbd.sock") }

func (d *demo) run(ctx context.Context) (err error) {
	began := time.Now()
	if d.dir, err = os.MkdirTemp(slowPlace(os.TempDir(), "/var/tmp"), "forebay-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cleanup()) }()
	for _, dir := range []string{d.state(), d.store()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if d.burst, err = newBurst(ctx, d.tree); err != nil {
		return err
	}
	say("The burst: %d files from 1 KiB to 512 MiB, %s together, copied from %s.", len(d.burst.files), gib(d.burst.bytes), d.burst.tree)

	straight, err := d.straight(ctx)
	if err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	handed, err := d.hand(ctx, straight)
	if err != nil {
		return err
	}
	if err := d.killInTheMiddle(ctx); err != nil {
		return err
	}
	if err := d.drain(ctx); err != nil {
		return err
	}
	if err := d.compare(ctx); err != nil {
		return err
	}
	if err := d.readBack(ctx); err != nil {
		return err
	}
	if err := d.status(ctx); err != nil {
		return err
	}
	if err := d.mount(ctx); err != nil {
		return err
	}
	say("\nThe application went on after %s instead of %s: %s. Nothing was lost. (%s in all)",
		seconds(handed), seconds(straight), times(straight, handed, "sooner", "later"), seconds(time.Since(began)))
	return nil
}

// slowPlace returns the first folder that is on a file system outside memory, since a store that is
// memory itself is as fast as any buffer. It returns the first one of all if each is in memory.
func slowPlace(dirs ...string) string {
	for _, dir := range dirs {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err == nil && fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
			return dir
		}
	}
	return dirs[0]
}

// times compares a time with a longer or shorter one, in words.
func times(before, now time.Duration, less, more string) string {
	if now > before {
		return fmt.Sprintf("%.1f times %s, as the directory is about as fast as memory here", now.Seconds()/before.Seconds(), more)
	}
	return fmt.Sprintf("%.1f times %s", before.Seconds()/now.Seconds(), less)
}

// straight writes the burst without Forebay, for the comparison.
func (d *demo) straight(ctx context.Context) (time.Duration, error) {
	dir := filepath.Join(d.dir, "straight")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	took, err := d.burst.each(ctx, func(f file) error { return writeStraight(filepath.Join(dir, f.name), f.pieces()) })
	if err != nil {
		return 0, err
	}
	say("Straight into the directory, with fsync:   %s  (%s)", seconds(took), rate(d.burst.bytes, took))
	return took, os.RemoveAll(dir)
}

func writeStraight(name string, pieces func(func([]byte) error) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = pieces(func(p []byte) error { _, err := f.Write(p); return err })
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// start starts the daemon and waits until its memory is ready.
func (d *demo) start(ctx context.Context) error {
	began := time.Now()
	if err := d.launch(ctx); err != nil {
		return err
	}
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		s, err := daemonStatus(ctx, c)
		if err != nil {
			return err
		}
		if !s.Memory.Populating {
			break
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	_, err = admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: bufferName, Backing: "file://" + d.store()})
	say("bbd --dev is up, its memory ready, a buffer in front of the directory: %s", seconds(time.Since(began)))
	return err
}

// launch starts the process and waits until it serves.
func (d *demo) launch(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(d.dir, "bbd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	d.daemon = exec.Command(filepath.Join(d.bin, "bbd"), "--dev", "--dir", d.state(), "--memory", "3GiB")
	d.daemon.Stdout, d.daemon.Stderr = log, log
	d.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C is ours to handle
	if err := d.daemon.Start(); err != nil {
		return err
	}
	for range 3000 {
		c, err := d.dial(ctx)
		if err == nil {
			return c.Close()
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("bbd does not serve; its log:\n%s", text)
}

func (d *demo) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, client.Options{Address: "unix://" + d.socket(), Name: "demo", RetryFor: -1})
}

// hand hands the burst over as an application would: write, close, go on.
func (d *demo) hand(ctx context.Context, straight time.Duration) (time.Duration, error) {
	c, err := d.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b := c.Buffer(bufferName)
	took, err := d.burst.each(ctx, func(f file) error {
		to, err := b.Create(ctx, f.name)
		if err != nil {
			return err
		}
		defer to.Abort() // does nothing after Close
		if err := f.pieces()(func(p []byte) error { _, err := to.Write(p); return err }); err != nil {
			return err
		}
		return to.Close()
	})
	if err == nil {
		say("Handed to Forebay, every file committed:   %s  (%s), %s", seconds(took), rate(d.burst.bytes, took), times(straight, took, "faster", "slower"))
	}
	return took, err
}

// readBack reads everything from memory and compares it.
func (d *demo) readBack(ctx context.Context) error {
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	b := c.Buffer(bufferName)
	took, err := d.burst.each(ctx, func(f file) error {
		from, err := b.Open(ctx, f.name)
		if err != nil {
			return err
		}
		defer from.Close()
		return f.compare(from)
	})
	if err == nil {
		say("Read back from memory and compared:        %s  (%s)\n", seconds(took), rate(d.burst.bytes, took))
	}
	return err
}

// killInTheMiddle waits until the flusher has done a part of its work, kills the
// daemon and starts it again. A directory that is faster than the burst may have
// everything by then.
func (d *demo) killInTheMiddle(ctx context.Context) error {
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var dirty int64
	for {
		s, err := daemonStatus(ctx, c)
		if err != nil {
			return err
		}
		dirty = s.dirty()
		if dirty < d.burst.bytes*9/10 {
			break
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	if err := d.daemon.Process.Kill(); err != nil {
		return err
	}
	d.daemon.Wait() // its exit status is that of a killed process
	began := time.Now()
	if err := d.launch(ctx); err != nil {
		return err
	}
	say("Killed (SIGKILL) with %s still to flush; serving again after %s", gib(dirty), seconds(time.Since(began)))
	return nil
}

// drain waits until everything is on the store.
func (d *demo) drain(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "bbctl"), "--socket", d.socket(), "drain", bufferName)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// compare compares every file in the store, and finds none that should not be there.
func (d *demo) compare(ctx context.Context) error {
	took, err := d.burst.each(ctx, func(f file) error {
		from, err := os.Open(filepath.Join(d.store(), f.name))
		if err != nil {
			return err
		}
		defer from.Close()
		return f.compare(from)
	})
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(d.store())
	if err != nil {
		return err
	}
	if len(entries) != len(d.burst.files) {
		return fmt.Errorf("the directory holds %d names, the burst has %d files", len(entries), len(d.burst.files))
	}
	say("Compared with the directory, byte for byte: all %d files are equal (%s)", len(d.burst.files), seconds(took))
	return nil
}

func (d *demo) status(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "bbctl"), "--socket", d.socket(), "status")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// cleanup stops the daemon, frees its memory and deletes the folder.
func (d *demo) cleanup() error {
	if err := d.unmount(); err != nil {
		return err // the folder has the mount in it
	}
	if d.daemon != nil && d.daemon.Process != nil && d.daemon.ProcessState == nil {
		d.daemon.Process.Signal(syscall.SIGTERM)
		d.daemon.Wait()
	}
	purge := exec.Command(filepath.Join(d.bin, "bbd"), "purge", "--discard", "--dir", d.state())
	text, err := purge.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("freeing memory: %w: %s", err, text)
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%6.2f s", d.Seconds()) }
func gib(n int64) string             { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

func rate(n int64, d time.Duration) string {
	return fmt.Sprintf("%.2f GB/s", float64(n)/1e9/d.Seconds())
}
