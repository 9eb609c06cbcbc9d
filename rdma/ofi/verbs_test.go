//go:build ofi && cgo && verbs

package ofi

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/rdmatest"
)

// TestConformanceVerbs needs a verbs device, since scripts/rxe.sh has one.
func TestConformanceVerbs(t *testing.T) { suite(t, "verbs") }

func TestVerbsSmallWritesNeedNoStage(t *testing.T) { smallWritesNeedNoStage(t, "verbs") }

func TestVerbsIdleUsesNoProcessor(t *testing.T) { idleUsesNoProcessor(t, "verbs") }

func TestVerbsLocalMemoryIsNotOffered(t *testing.T) { localMemoryIsNotOffered(t, "verbs") }

// TestVerbsMemoryAtTheSameAddress: memory that was registered, closed and unmapped, and other
// memory that comes to lie where it was, have nothing to do with each other.
func TestVerbsMemoryAtTheSameAddress(t *testing.T) {
	far, err := New(configurations["verbs"].opts)
	must(t, err)
	defer far.Close()
	near, err := New(configurations["verbs"].opts)
	must(t, err)
	defer near.Close()
	l, err := far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	c, err := near.Dial(t.Context(), l.Addr())
	must(t, err)
	seen := map[*byte]bool{}
	again := false
	for round := range 8 {
		mem, err := rdmatest.Allocate(1 << 20)
		must(t, err)
		again = again || seen[&mem[0]]
		seen[&mem[0]] = true
		r, err := far.Register(mem, all)
		must(t, err)
		content := bytes.Repeat([]byte{byte(round + 1)}, len(mem))
		must(t, rdma.Do(t.Context(), c, []rdma.Op{{Kind: rdma.OpWrite, Local: content, Remote: rdma.Remote{Key: r.Key()}}}))
		if !bytes.Equal(mem, content) {
			t.Fatalf("round %d: what was written is not there", round)
		}
		must(t, r.Close())
		must(t, rdmatest.Free(mem))
	}
	if !again {
		t.Error("no memory came to lie where other memory was: the test proves nothing")
	}
}

// TestVerbsLockedMemory: memory that the kernel does not let be pinned is refused, with the limit
// and the remedy. A higher limit is all that it takes.
func TestVerbsLockedMemory(t *testing.T) {
	f, err := New(configurations["verbs"].opts)
	must(t, err)
	defer f.Close()
	mem, err := rdmatest.Allocate(8 << 20)
	must(t, err)
	defer rdmatest.Free(mem)
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	limit := func(n uint64) { must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: n, Max: before.Max})) }
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)) }()
	limit(4 << 20)

	type result struct {
		r   rdma.Region
		err error
	}
	register := func() result {
		ch := make(chan result)
		go func() {
			runtime.LockOSThread() // for good, so that no other code gets a thread without its rights
			if err := withoutIPCLock(); err != nil {
				ch <- result{err: err}
				return
			}
			r, err := f.Register(mem, all)
			ch <- result{r, err}
		}()
		return <-ch
	}
	if got := register(); !errors.Is(got.err, unix.ENOMEM) || !strings.Contains(got.err.Error(), "may lock 4194304 bytes") ||
		!strings.Contains(got.err.Error(), "ulimit -l") {
		t.Errorf("8 MiB where 4 MiB may be locked: %v", got.err)
	}
	limit(64 << 20)
	got := register()
	must(t, got.err)
	must(t, got.r.Close())
}

// withoutIPCLock drops the right to lock memory beyond the limit, for this thread.
func withoutIPCLock() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	return unix.Capset(&head, &data[0])
}

func TestVerbsKeptMemoryAtTheSameAddress(t *testing.T) { keptMemoryAtTheSameAddress(t, "verbs") }

func TestVerbsPeerComesBack(t *testing.T) { peerComesBack(t, "verbs") }
