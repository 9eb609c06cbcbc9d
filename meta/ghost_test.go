package meta

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/ids"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/txn"
)

// A server that is killed reads its log again when it starts. Removed names must not come back from
// there, however long ago that was. A marker that had expired would leave the versions before it as
// the newest.
func TestRemovedStaysRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, dir)
	m := connectTo(t, Options{InProcess: s})
	newBuffer(t, m, "crash")
	m.Close()
	s.Shutdown()

	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "FOREBAY_META_CHILD="+dir, "FOREBAY_META_REMOVE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "removed\n" {
		t.Fatalf("%q, %v", line, err)
	}
	time.Sleep(15 * time.Second)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()

	s = startServer(t, dir)
	m = connectTo(t, Options{InProcess: s})
	ns, err := m.Namespace(testContext(t), "crash")
	if err != nil {
		t.Fatal(err)
	}
	for path := range namespacetest.Paths(t, ns) {
		if path != "kept" && path != "new" {
			t.Errorf("%s came back", path)
		}
	}
	ops, err := ns.StoreOps(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		t.Errorf("%+v came back", op)
	}
}

// removeAndWait removes, renames and carries out, and then waits to be killed.
func removeAndWait(ctx context.Context, ids *ids.Source, ns *txn.Tree) error {
	for i := range 20 {
		f, err := ids.NewFileID(ctx)
		if err != nil {
			return err
		}
		name := fmt.Sprint("f", i)
		if _, err := ns.Create(ctx, bb.Entry{Parent: bb.RootDir, Name: name, Type: bb.TypeFile, File: f}); err != nil {
			return err
		}
		for size := range int64(3) {
			if _, err := ns.Update(ctx, bb.RootDir, name, func(e *bb.Entry) error { e.Size = size; return nil }); err != nil {
				return err
			}
		}
		switch i % 3 {
		case 0:
			_, err = ns.Remove(ctx, bb.RootDir, name, namespace.RemoveOptions{})
		case 1:
			_, err = ns.Remove(ctx, bb.RootDir, name, namespace.RemoveOptions{StoreOp: true})
		default:
			_, err = ns.Rename(ctx, bb.RootDir, name, bb.RootDir, "new", namespace.RenameOptions{Replace: true, StoreOp: true})
		}
		if err != nil {
			return err
		}
	}
	ops, err := ns.StoreOps(ctx)
	if err != nil {
		return err
	}
	for _, op := range ops {
		if _, err := ns.DoneStoreOp(ctx, op.Revision); err != nil {
			return err
		}
	}
	fmt.Println("removed")
	select {}
}

// A list never misses an entry that is being changed while it is made.
func TestListSeesWhatChanges(t *testing.T) {
	t.Parallel()
	const files = 8
	m := connectTo(t, Options{InProcess: startServer(t, t.TempDir())})
	ns := newBuffer(t, m, "busy")
	ctx, cancel := context.WithCancel(testContext(t))
	var wg sync.WaitGroup
	for i := range files {
		name := fmt.Sprint("f", i)
		if _, err := ns.Create(ctx, bb.Entry{Parent: bb.RootDir, Name: name, Type: bb.TypeFile, File: bb.FileID(i + 1)}); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := ns.Update(ctx, bb.RootDir, name, func(e *bb.Entry) error { e.Size++; return nil })
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2000 {
		seen := map[string]bool{}
		err := ns.ScanAll(ctx, func(e bb.Entry) error { seen[e.Name] = true; return nil })
		if err != nil || len(seen) != files {
			t.Errorf("%d of %d files were seen: %v", len(seen), files, err)
			break
		}
	}
	cancel()
	wg.Wait()
}
