package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const sharedMemory = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 512MiB, region_size: 64MiB}\n"

// startShared starts a daemon whose memory users share, with more configuration.
func startShared(t *testing.T, more string) *users {
	t.Helper()
	u := startForUsers(t, sharedMemory+more)
	u.mapped()
	return u
}

// mapped lets users map regions.
func (u *users) mapped() {
	u.t.Helper()
	if err := os.Chmod(u.d.Memory, 0o711); err != nil {
		u.t.Fatal(err)
	}
}

// hang stops all store workers of a user, those that are started meanwhile, too, until the returned function is called.
func (u *users) hang(uid uint32) (undo func()) {
	ctx, cancel := context.WithCancel(u.t.Context())
	var wg sync.WaitGroup
	signal := func(sig os.Signal) {
		for _, w := range storeWorkers(u.d.Pid()) {
			if info, err := os.Stat(fmt.Sprint("/proc/", w.Pid)); err == nil && info.Sys().(*syscall.Stat_t).Uid == uid {
				w.Signal(sig)
			}
		}
	}
	signal(syscall.SIGSTOP)
	wg.Go(func() {
		for ctx.Err() == nil {
			signal(syscall.SIGSTOP)
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		wg.Wait()
		signal(syscall.SIGCONT)
	}
}

// hoard makes a user put files, one after the other, and returns when that waits for the user's own
// memory. end ends it, and wait returns how it ended.
func (u *users) hoard(uid int, url string, files int, bytes int64) (end func(), wait func() error) {
	u.t.Helper()
	ctx, cancel := context.WithCancel(u.t.Context())
	ended := make(chan error, 1)
	file := u.sparse(fmt.Sprint("hoard", time.Now().UnixNano()), uid, bytes)
	go func() {
		for i := range files {
			out, err := u.command(ctx, uid, "put", file, fmt.Sprint(url, i)).CombinedOutput()
			if err != nil {
				ended <- fmt.Errorf("%w\n%s", err, out)
				return
			}
		}
		ended <- nil
	}()
	for u.line(uid).Waiting.For["own data"] == 0 {
		select {
		case err := <-ended:
			cancel()
			u.t.Fatalf("memory is not full: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return cancel, func() error { return <-ended }
}

// works makes a user write more than a region through a buffer with a store that answers.
func (u *users) works(uid int, buffer, round string) {
	u.t.Helper()
	work := u.sparse("work"+round, uid, 20<<20)
	for i := range 6 {
		u.must(uid, "put", work, fmt.Sprintf("bb://%s/%s-%d", buffer, round, i))
	}
	u.must(uid, "drain", buffer, "--timeout", "1m")
}

// TestMemoryBehindAHungStore: a user's store hangs with all memory full of files for it. Another user works,
// and so does root. When the store answers, the first one's write ends.
func TestMemoryBehindAHungStore(t *testing.T) {
	t.Parallel()
	u := startShared(t, "")
	for uid, name := range map[int]string{aliceUID: "a", bobUID: "b"} {
		u.must(uid, "buffer", "create", name, "--backing", backingURL(u.dir("store-"+name, uid, 0o700)))
	}
	u.must(0, "buffer", "create", "roots")
	u.works(aliceUID, "a", "before")
	answers := u.hang(aliceUID)
	end, wait := u.hoard(aliceUID, "bb://a/hoard", 30, 20<<20)
	defer end()
	u.works(bobUID, "b", "meanwhile")
	u.must(0, "put", u.sparse("root", 0, 40<<20), "bb://roots/f")
	answers()
	if err := wait(); err != nil {
		t.Errorf("when the store answers again: %v", err)
	}
	u.must(aliceUID, "drain", "a", "--timeout", "2m")
}

// TestSharesAfterKill: the daemon is killed again and again while two users write more than there is memory. All acknowledged
// files are there, a hoarder of memory takes no other user's share, and a user that left is admitted again.
func TestSharesAfterKill(t *testing.T) {
	t.Parallel()
	u := startShared(t, "")
	for uid, name := range map[int]string{aliceUID: "a", bobUID: "b"} {
		u.must(uid, "buffer", "create", name, "--backing", backingURL(u.dir("store-"+name, uid, 0o700)))
	}
	for round := range 3 {
		for url, content := range u.killedAmid(round) {
			out, err := u.command(t.Context(), 0, "cat", url).Output()
			if err != nil || !bytes.Equal(out, content) {
				t.Fatalf("kill %d: %s has %d bytes, want %d: %v", round, url, len(out), len(content), err)
			}
		}
		u.must(aliceUID, "buffer", "create", "hoard") // comes back
		end, wait := u.hoard(aliceUID, "bb://hoard/all", 1, 600<<20)
		u.works(bobUID, "b", fmt.Sprint("after-", round))
		end()
		if err := wait(); err == nil {
			t.Error("more was put than there is memory")
		}
		u.must(aliceUID, "buffer", "destroy", "hoard", "--discard", "--yes")
	}
}

// TestSharesAfterKillWithDisk: with a disk tier one user fills more than memory with files that no store accepts,
// before the daemon is killed and after it. All acknowledged files are there, and the other user gets the guaranteed
// share of memory each time: three regions of eight, of which one is kept for a newcomer and one for root.
func TestSharesAfterKillWithDisk(t *testing.T) {
	t.Parallel()
	u := startShared(t, "disk: {dir: \"{{.Dir}}/disk\", size: 3GiB}\n")
	const share, size = 3, 40 << 20
	for round := range 3 {
		for uid, name := range map[int]string{aliceUID: "a", bobUID: "b"} {
			u.must(uid, "buffer", "create", name)
		}
		for url, content := range u.killedAmid(round) {
			out, err := u.command(t.Context(), 0, "cat", url).Output()
			if err != nil || !bytes.Equal(out, content) {
				t.Fatalf("kill %d: %s has %d bytes, want %d: %v", round, url, len(out), len(content), err)
			}
		}
		u.must(bobUID, "buffer", "destroy", "b", "--discard", "--yes")
		u.must(bobUID, "buffer", "create", "b")
		full := u.fills(aliceUID, "bb://a/fill")
		file, most := u.sparse(fmt.Sprint("share-", round), bobUID, size), 0
		for i := 0; i < share || most < share-1 && i < 10*share; i++ { // a check may come when the written bytes are spilled
			u.must(bobUID, "put", file, fmt.Sprint("bb://b/share-", i%share))
			most = max(most, u.regions(bobUID))
		}
		if err := full(); err != nil {
			t.Errorf("kill %d: the user who fills memory: %v", round, err)
		}
		if most < share-1 {
			t.Errorf("kill %d: the other user had %d regions, want %d of a share of %d", round, most, share-1, share)
		}
		for _, name := range []string{"a", "b"} {
			u.must(0, "buffer", "destroy", name, "--discard", "--yes")
		}
	}
}

// fills makes a user put files, more than there is memory, again and again. It returns when memory
// is full for the first time. The returned function ends it.
func (u *users) fills(uid int, url string) (end func() error) {
	u.t.Helper()
	const files, size = 40, 20 << 20
	file := u.sparse(fmt.Sprint("fill", time.Now().UnixNano()), uid, size)
	ctx, cancel := context.WithCancel(u.t.Context())
	full, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			if i == files {
				close(full)
			}
			out, err := u.command(ctx, uid, "put", file, fmt.Sprint(url, i%files)).CombinedOutput()
			if err != nil && ctx.Err() == nil {
				ended <- fmt.Errorf("%w\n%s", err, out)
				return
			}
			if ctx.Err() != nil {
				ended <- nil
				return
			}
		}
	}()
	select {
	case <-full:
	case err := <-ended:
		cancel()
		u.t.Fatal(err)
	}
	return func() error {
		cancel()
		return <-ended
	}
}

// regions counts the regions of memory that are a user's.
func (u *users) regions(uid int) (n int) {
	u.t.Helper()
	list, err := os.ReadDir(u.d.Memory)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && info.Sys().(*syscall.Stat_t).Uid == uint32(uid) {
			n++
		}
	}
	return n
}

// The users' writes before each kill, together more than memory.
const (
	amidBytes = 8 << 20
	amidFiles = 35
)

// killedAmid kills the daemon while two users write, starts it again, and returns the files written before.
func (u *users) killedAmid(round int) map[string][]byte {
	u.t.Helper()
	var mu sync.Mutex
	written := map[string][]byte{}
	var counts [2]atomic.Int64
	ctx, cancel := context.WithCancel(u.t.Context())
	defer cancel()
	var wg sync.WaitGroup
	write := func(uid, n int, url string) error {
		content := bytes.Repeat(fmt.Appendf(nil, "%8d of %8d in %8d; ", n, uid, round), amidBytes/32)
		file := filepath.Join(u.top, fmt.Sprintf("w%d", uid))
		if err := errors.Join(os.WriteFile(file, content, 0o600), os.Chown(file, uid, uid)); err != nil {
			return err
		}
		out, err := u.command(ctx, uid, "put", file, url).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		mu.Lock()
		defer mu.Unlock()
		written[url] = content
		return nil
	}
	for i, uid := range []int{aliceUID, bobUID} {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := write(uid, n, fmt.Sprintf("bb://%s/w%d-%d", []string{"a", "b"}[i], round, n))
				if err != nil && ctx.Err() == nil && counts[i].Load() < amidFiles {
					u.t.Errorf("uid %d: %v", uid, err)
					cancel()
				}
				counts[i].Add(1)
			}
		})
	}
	for ctx.Err() == nil && (counts[0].Load() < amidFiles || counts[1].Load() < amidFiles) {
		time.Sleep(time.Millisecond)
	}
	u.d.Kill()
	cancel()
	wg.Wait()
	u.d.Start()
	u.mapped()
	return written
}
