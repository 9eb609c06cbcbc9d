package meta

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/embedded"
	"forebay/meta/ids"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/txn"
)

// child is a process that holds the namespace in the given directory, and changes it as fast as it
// can until it is killed. It prints acknowledged steps:
//
//   - PATH FILE         created
//     > PATH FILE NEW     about to be renamed to NEW
//     = PATH FILE NEW     was
func child() int {
	ctx := context.Background()
	s, err := embedded.Start(ctx, embedded.Options{Dir: os.Getenv("FOREBAY_META_CHILD"), BatchDir: os.Getenv("FOREBAY_META_BATCHES")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	m, err := Connect(ctx, Options{InProcess: s, SoleWriter: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ns, err := m.Namespace(ctx, "crash")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv("FOREBAY_META_REMOVE") != "" {
		fmt.Fprintln(os.Stderr, removeAndWait(ctx, m.IDs(), ns))
		return 1
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			if err := churn(ctx, m.IDs(), ns, g); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	wg.Wait()
	return 1
}

// churn fills directories, renames some of the files, and every directory when it
// has ten.
func churn(ctx context.Context, ids *ids.Source, ns *txn.Tree, g int) error {
	for n := 0; ; n++ {
		id, err := ids.NewDirID(ctx)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("g%d-%v", g, id)
		d, err := ns.Mkdir(ctx, bb.RootDir, name, namespace.Owner{})
		if err != nil {
			return err
		}
		for i := range 10 {
			f, err := ids.NewFileID(ctx)
			if err != nil {
				return err
			}
			at := fmt.Sprintf("f%d", i)
			if _, err := ns.Create(ctx, bb.Entry{Parent: d.Dir, Name: at, Type: bb.TypeFile, File: f}); err != nil {
				return err
			}
			fmt.Printf("+ %s/%s %v\n", name, at, f)
			if i%5 == 0 {
				fmt.Printf("> %s/%s %v %s/new%d\n", name, at, f, name, i)
				if _, err := ns.Rename(ctx, d.Dir, at, d.Dir, fmt.Sprintf("new%d", i), namespace.RenameOptions{StoreOp: true}); err != nil {
					return err
				}
				fmt.Printf("= %s/%s %v %s/new%d\n", name, at, f, name, i)
			}
		}
	}
}

// acknowledged is the child's output for a file.
type acknowledged struct{ path, next string }

func TestKilled(t *testing.T) {
	for name, batches := range map[string]string{"batches=disk": "", "batches=memory": memoryDir(t)} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FOREBAY_META_BATCHES", batches)
			testKilled(t)
		})
	}
}

func testKilled(t *testing.T) {
	dir := t.TempDir()
	func() {
		s := startServer(t, dir)
		m := connectTo(t, Options{InProcess: s})
		newBuffer(t, m, "crash")
		m.Close()
		s.Shutdown()
	}()
	files := map[string]acknowledged{}
	for range 6 {
		runChild(t, dir, 40+rand.IntN(400), files)
	}
	if batches := os.Getenv("FOREBAY_META_BATCHES"); batches != "" {
		if all, err := os.ReadDir(batches); err != nil || len(all) == 0 {
			t.Errorf("no batch passed through memory: %v, %v", all, err)
		}
	}
	s := startServer(t, dir)
	m := connectTo(t, Options{InProcess: s})
	ns, err := m.Namespace(testContext(t), "crash")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for path, id := range namespacetest.Paths(t, ns) {
		if id != "/" {
			found[id] = append(found[id], path)
		}
	}
	for id, a := range files {
		if at := found[id]; len(at) != 1 || at[0] != a.path && at[0] != a.next {
			t.Errorf("file %s was acknowledged at %s (then %q) and is at %q", id, a.path, a.next, at)
		}
	}
	checkStoreOps(t, ns, files, found)
	if len(files) < 100 || m.Stats().Garbage > 0 {
		t.Errorf("only %d files, %d records of garbage", len(files), m.Stats().Garbage)
	}
}

// checkStoreOps checks that every rename that took effect left its operation.
func checkStoreOps(t *testing.T, ns *txn.Tree, files map[string]acknowledged, found map[string][]string) {
	t.Helper()
	ops, err := ns.StoreOps(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	byFile := map[string]namespace.StoreOp{}
	for _, op := range ops {
		byFile[op.File.String()] = op
	}
	for id := range files {
		at := found[id]
		op, pending := byFile[id]
		if len(at) == 1 && strings.Contains(at[0], "/new") != pending {
			t.Errorf("file %s is at %s, its operation is %+v (%v)", id, at[0], op, pending)
		}
	}
}

// runChild runs the child, kills it after it acknowledged a number of steps, and adds its output to
// files.
func runChild(t *testing.T, dir string, steps int, files map[string]acknowledged) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "FOREBAY_META_CHILD="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	for n := 0; ; n++ {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		note(files, strings.Fields(line))
		if n == steps {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child was not killed: %v\n%s", err, stderr.String())
	}
}

func note(files map[string]acknowledged, f []string) {
	switch {
	case len(f) == 3 && f[0] == "+":
		files[f[2]] = acknowledged{path: f[1]}
	case len(f) == 4 && f[0] == ">":
		files[f[2]] = acknowledged{path: f[1], next: f[3]}
	case len(f) == 4 && f[0] == "=":
		files[f[2]] = acknowledged{path: f[3]}
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, dir)
	m := connectTo(t, Options{InProcess: s, SoleWriter: true})
	ns := newBuffer(t, m, "buf")
	d, err := ns.MkdirAll(testContext(t), "a/b", namespace.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	e := namespacetest.Create(t, ns, d.Dir, "f")
	id, err := m.IDs().NewFileID(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	m.Close()
	s.Shutdown()
	s.Shutdown()

	s = startServer(t, dir)
	m = connectTo(t, Options{InProcess: s, SoleWriter: true})
	ns, err = m.Namespace(testContext(t), "buf")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ns.Resolve(testContext(t), "a/b/f")
	if err != nil || got.File != e.File || got.Revision != e.Revision {
		t.Errorf("%+v %v", got, err)
	}
	if again, err := m.IDs().NewFileID(testContext(t)); err != nil || again>>32 <= id>>32 {
		t.Errorf("id %v after %v: %v", again, id, err)
	}
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(listen string) *embedded.Server {
		s, err := embedded.Start(testContext(t), embedded.Options{Dir: dir, Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Shutdown)
		return s
	}
	s := start("127.0.0.1:0")
	url := s.URL()
	m := connectTo(t, Options{URLs: []string{url}, SoleWriter: true})
	ns := newBuffer(t, m, "buf")
	namespacetest.Create(t, ns, bb.RootDir, "before")
	if st := m.Status(); !st.Connected || !strings.Contains(st.Server, "127.0.0.1") || st.Since.IsZero() {
		t.Errorf("%+v", st)
	}
	s.Shutdown()

	short, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
	defer cancel()
	_, err := ns.Create(short, namespacetest.File(bb.RootDir, "unanswered"))
	wantKind(t, "create while the server is away", err, bb.Unavailable)
	if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(url, "nats://")) {
		t.Errorf("the error does not name the server: %v", err)
	}
	if _, err := ns.Lookup(short, bb.RootDir, "before"); err != nil {
		t.Errorf("the cache does not answer: %v", err)
	}
	if st := m.Status(); st.Connected || st.LastError == "" {
		t.Errorf("%+v", st)
	}
	cancelled, cancel := context.WithCancel(testContext(t))
	cancel()
	_, err = ns.Remove(cancelled, bb.RootDir, "before", namespace.RemoveOptions{})
	wantKind(t, "remove when cancelled", err, bb.Cancelled)

	waiting := make(chan error, 1)
	e := namespacetest.File(bb.RootDir, "waited")
	go func() { _, err := ns.Create(testContext(t), e); waiting <- err }()
	time.Sleep(50 * time.Millisecond)
	start(strings.TrimPrefix(url, "nats://"))
	if err := <-waiting; err != nil {
		t.Errorf("create that waited: %v", err)
	}
	if _, err := ns.Lookup(testContext(t), bb.RootDir, "waited"); err != nil {
		t.Error(err)
	}
	if st := m.Status(); !st.Connected || st.Reconnects == 0 {
		t.Errorf("%+v", st)
	}
}

func TestConnectFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	_, err := Connect(ctx, Options{URLs: []string{"nats://user:secret@127.0.0.1:1"}})
	wantKind(t, "connect to nobody", err, bb.Unavailable)
	if err != nil && (strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "127.0.0.1:1")) {
		t.Errorf("%v", err)
	}
	for what, o := range map[string]Options{
		"no server":   {},
		"replicas":    {URLs: []string{"nats://x"}, Replicas: 2},
		"key missing": {URLs: []string{"nats://x"}, Cert: "c"},
		"no file":     {URLs: []string{"tls://127.0.0.1:1"}, CA: "/nonexistent"},
	} {
		_, err := Connect(ctx, o)
		wantKind(t, what, err, bb.Invalid)
	}
}
