//go:build soak

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// TestNamespaceDamaged: the namespace's servers are killed, and their folders are set back to an
// older copy, or files in them are truncated or have bits flipped. The node with the files keeps
// running, or starts again. Every acknowledged file is then under a name that it had, or below
// .lost+found, with its last bytes, or is named. If the namespace cannot be used any more, that is
// reported, and memory stays. With the folders set back whole, all of it is there.
func TestNamespaceDamaged(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nats-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v: %s", err, out)
	}
	bbdtest.Binary(t)
	first, end := uint64(0), seeds(4)
	if only, err := fmt.Sscan(os.Getenv("FOREBAY_SEED"), &first); err == nil && only == 1 {
		end = first + 1
	}
	for seed := first; seed < end; seed++ {
		for _, servers := range []int{1, 3} {
			if servers == 3 && os.Getenv("FOREBAY_SEEDS") == "" && seed > 0 {
				continue // three servers take seconds to agree
			}
			t.Run(fmt.Sprintf("seed %d of %d", seed, servers), func(t *testing.T) {
				t.Parallel()
				damageNamespace(t, binary, seed, servers)
			})
		}
	}
}

// server is a process that ends when it is killed, or when it refuses its folder.
type server struct {
	*exec.Cmd
	ended chan struct{}
}

// natsServers are NATS servers of a namespace, each a process with a folder of its own.
type natsServers struct {
	t      *testing.T
	binary string
	dir    string
	urls   []string
	cmds   []*server // nil: killed
	copies []string  // of their folders
}

func newServers(t *testing.T, binary string, n int) *natsServers {
	t.Helper()
	s := &natsServers{t: t, binary: binary, dir: t.TempDir(), cmds: make([]*server, n)}
	var routes, listen []string
	for range n {
		at := bbdtest.FreePort(t, "127.0.0.1")
		listen, s.urls = append(listen, at), append(s.urls, "nats://"+at)
		routes = append(routes, bbdtest.FreePort(t, "127.0.0.1"))
	}
	for i := range n {
		text := fmt.Sprintf("server_name: s%d\nlisten: %q\njetstream { store_dir: %q }\n", i, listen[i], s.folder(i))
		if n > 1 {
			text += fmt.Sprintf("cluster { name: c, listen: %q, routes: [ \"nats://%s\" ] }\n", routes[i], strings.Join(routes, `", "nats://`))
		}
		if err := os.WriteFile(s.folder(i)+".conf", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.kill)
	return s
}

func (s *natsServers) folder(i int) string { return filepath.Join(s.dir, fmt.Sprint(i)) }

// start starts the servers and waits until each takes connections, or has ended, since nats-server
// refuses some damaged folders. It returns how many serve.
func (s *natsServers) start() (serving int) {
	s.t.Helper()
	for i := range s.cmds {
		log, err := os.OpenFile(s.folder(i)+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			s.t.Fatal(err)
		}
		cmd := exec.Command(s.binary, "-c", s.folder(i)+".conf")
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err = cmd.Start()
		log.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		s.cmds[i] = &server{cmd, make(chan struct{})}
		go func() {
			defer close(s.cmds[i].ended)
			_ = cmd.Wait() // that it was killed is no news
		}()
	}
	for i := range s.cmds {
		if s.serves(i) {
			serving++
		}
	}
	return serving
}

// serves waits until a server takes connections. It returns false if the server has ended.
func (s *natsServers) serves(i int) bool {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.urls[i], "nats://"))
		if err == nil {
			conn.Close()
			return true
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(s.folder(i) + ".log")
			s.t.Fatalf("server %d: %v\n%s", i, err, text)
		}
		select {
		case <-s.cmds[i].ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *natsServers) kill() {
	for i, cmd := range s.cmds {
		if cmd != nil {
			s.cmds[i] = nil
			_ = cmd.Process.Kill()
			<-cmd.ended
		}
	}
}

// copy copies the folders while the servers stand still, so the copy equals the folders after a
// crash of all of them.
func (s *natsServers) copy() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	defer s.signal(syscall.SIGCONT)
	for i := range s.cmds {
		s.copies = append(s.copies, copyOf(s.t, s.folder(i)))
	}
}

func (s *natsServers) signal(sig syscall.Signal) {
	for _, cmd := range s.cmds {
		if err := cmd.Process.Signal(sig); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *natsServers) putBack(n int) {
	s.t.Helper()
	for i := range n {
		putBack(s.t, s.folder(i), s.copies[i])
	}
}

// damage damages the folders of the first n servers, and returns the kind of damage.
func (s *natsServers) damage(rng *rand.Rand, how, n int) (what []string) {
	s.t.Helper()
	if how == 0 {
		s.putBack(n)
		return []string{fmt.Sprintf("%d folders set back", n)}
	}
	for i := range n {
		for range 1 + rng.IntN(3) {
			what = append(what, damageFile(s.t, rng, s.folder(i), how == 1))
		}
	}
	return what
}

// damageFile truncates a file below a folder, or flips bits of it.
func damageFile(t *testing.T, rng *rand.Rand, folder string, truncate bool) string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no files below %s: %v", folder, err)
	}
	file := files[rng.IntN(len(files))]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name, _ := filepath.Rel(filepath.Dir(folder), file)
	at := rng.IntN(len(text))
	if truncate {
		what := fmt.Sprintf("%s truncated from %d to %d", name, len(text), at)
		if err := os.Truncate(file, int64(at)); err != nil {
			t.Fatal(err)
		}
		return what
	}
	n := 1 + rng.IntN(8)
	for range n {
		text[rng.IntN(len(text))] ^= 1 << rng.IntN(8)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d bits of %s flipped", n, name)
}

// acked is a file that was acknowledged.
type acked struct {
	version clustertest.Version // the last one
	names   []string            // the last one at the end
	removed bool
}

// owed are the acknowledged changes of a namespace.
type owed struct {
	rng   *rand.Rand
	b     *client.Buffer
	files []*acked
	ever  map[clustertest.Version]bool
	next  uint64
}

func (o *owed) write(ctx context.Context, name string) (clustertest.Version, error) {
	o.next++
	v := clustertest.Version{Seed: 1000 + o.next, Size: clustertest.MinSize + o.rng.IntN(3000)}
	o.ever[v] = true
	return v, o.b.WriteFile(ctx, name, clustertest.Content(v.Seed, v.Size), 0o644)
}

// fresh writes a new file.
func (o *owed) fresh(ctx context.Context) error {
	name := fmt.Sprintf("d%d/f%03d", o.rng.IntN(8), len(o.files))
	if err := o.b.MkdirAll(ctx, filepath.Dir(name), 0o755); err != nil {
		return err
	}
	v, err := o.write(ctx, name)
	if err == nil {
		o.files = append(o.files, &acked{version: v, names: []string{name}})
	}
	return err
}

// step writes a file, and may rename, rewrite or remove an earlier one.
func (o *owed) step(ctx context.Context) error {
	if err := o.fresh(ctx); err != nil {
		return err
	}
	f := o.files[o.rng.IntN(len(o.files))]
	if f.removed {
		return nil
	}
	at := f.names[len(f.names)-1]
	switch o.rng.IntN(12) {
	case 0, 1:
		to := fmt.Sprintf("d%d/r%03d.%d", o.rng.IntN(2), len(o.files), len(f.names))
		if err := o.b.MkdirAll(ctx, filepath.Dir(to), 0o755); err != nil {
			return err
		}
		f.names = append(f.names, to)
		return o.b.Rename(ctx, at, to)
	case 2:
		v, err := o.write(ctx, at)
		f.version = v
		return err
	case 3:
		f.removed = true
		return o.b.Remove(ctx, at)
	}
	return nil
}

// read reads everything below a directory. Errs has the failed reads. A lost file is named.
func (o *owed) read(ctx context.Context, dir string, found map[clustertest.Version][]string, named map[string]bool, errs *[]error) {
	for e, err := range o.b.ReadDir(ctx, dir) {
		if err != nil {
			*errs = append(*errs, fmt.Errorf("listing %q: %w", dir, err))
			return
		}
		path := strings.TrimPrefix(dir+"/"+e.Name, "/")
		if e.IsDir() {
			o.read(ctx, path, found, named, errs)
			continue
		}
		text, err := o.b.ReadFile(ctx, path)
		switch {
		case errors.Is(err, client.ErrLost):
			named[path] = true
			continue
		case errors.Is(err, fs.ErrNotExist):
			continue // a removal was lost, and neither memory nor the store has it
		}
		if err != nil {
			*errs = append(*errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		v, err := clustertest.Identify(text)
		if err != nil {
			v = clustertest.Version{Size: -1} // no content that was ever written
		}
		found[v] = append(found[v], path)
	}
}

// view is a client's view of the acknowledged changes.
type view struct {
	errs    []error  // by which the namespace reports damage
	missing []string // files neither there nor named
	wrong   []string // files with bytes that were never acknowledged
	named   []string // files that are named as lost or unexplained
	aside   int      // files that are below .lost+found or have an earlier name
}

func (v *view) whole() bool { return len(v.errs)+len(v.missing)+len(v.wrong) == 0 }

func (v *view) String() string {
	return fmt.Sprintf("%d missing: %.600q\n%d wrong: %.600q\n%d errors: %.600v", len(v.missing), v.missing, len(v.wrong), v.wrong, len(v.errs), errors.Join(v.errs...))
}

// look drains the buffer, reads all of it, and compares.
func (o *owed) look(t *testing.T, c *client.Client) *view {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	v := &view{}
	named := map[string]bool{}
	report, err := admin.Drain(ctx, c, "b", 15*time.Second, nil)
	for _, f := range report.Failed {
		named[f.Path] = true
	}
	if err != nil && len(report.Failed) == 0 {
		v.errs = append(v.errs, fmt.Errorf("drain: %w", err))
	}
	if text, err := admin.Status(ctx, c, ""); err != nil || strings.Contains(string(text), `"foreign":[`) {
		v.errs = append(v.errs, fmt.Errorf("status: memory of another namespace, or an error: %v", err))
	}
	lost, err := c.Buffer("b").Lost(ctx)
	if err != nil {
		v.errs = append(v.errs, fmt.Errorf("lost: %w", err))
	}
	for _, e := range lost {
		named[e.Path] = true
	}
	found := map[clustertest.Version][]string{}
	o.read(ctx, "", found, named, &v.errs)
	if _, err := o.b.Stat(ctx, bb.LostDir); err == nil {
		o.read(ctx, bb.LostDir, found, named, &v.errs)
	}
	o.judge(v, found, named)
	return v
}

func (o *owed) judge(v *view, found map[clustertest.Version][]string, named map[string]bool) {
	for _, f := range o.files {
		places := found[f.version]
		now := f.names[len(f.names)-1]
		legal := slices.ContainsFunc(places, func(p string) bool { return slices.Contains(f.names, p) || strings.HasPrefix(p, bb.LostDir+"/") })
		switch {
		case f.removed || slices.Contains(places, now):
		case legal:
			v.aside++
		case slices.ContainsFunc(f.names, func(n string) bool { return named[n] }):
			v.named = append(v.named, now)
		default:
			v.missing = append(v.missing, fmt.Sprintf("%s (%v; it is at %q)", now, f.version, places))
		}
	}
	for version, places := range found {
		if !o.ever[version] {
			v.wrong = append(v.wrong, places...)
		}
	}
}

// settleBound ends a wait for all files, since servers that have to agree on a leader take minutes
// on a loaded machine.
const settleBound = 5 * time.Minute

// settle polls until all is there, for at most settleBound. Files that the namespace has lost get
// their entries one after the other. While calls fail, it waits no longer than within.
func (o *owed) settle(t *testing.T, c *client.Client, within time.Duration) *view {
	t.Helper()
	began := time.Now()
	for {
		v := o.look(t, c)
		if passed := time.Since(began); v.whole() || passed > settleBound || passed > within && len(v.errs) > 0 {
			return v
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func damageNamespace(t *testing.T, binary string, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	how, restarted := int(seed%3), seed/3%2 == 0
	servers := newServers(t, binary, n)
	if servers.start() < n {
		t.Fatal("not all of the servers start")
	}
	d := bbdtest.New(t)
	d.Config = fmt.Sprintf("%snats: {url: %q, replicas: %d}\nflush: {limit: 64KiB}\n", quickly, strings.Join(servers.urls, ","), n)
	d.Start()
	ctx := t.Context()
	c := dial(t, d)
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b", Backing: "file://" + t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	o := &owed{rng: rng, b: c.Buffer("b"), ever: map[clustertest.Version]bool{}}
	const files = 200
	copied := 1 + rng.IntN(files-1)
	for i := range files {
		if i == copied {
			servers.copy()
		}
		if err := o.step(ctx); err != nil {
			t.Fatalf("after %d files: %v", i, err)
		}
	}
	servers.kill()
	if restarted {
		c.Close()
		d.Kill()
	}
	what := strings.Join(servers.damage(rng, how, 1+rng.IntN(n)), "; ")
	serving := servers.start()
	v := &view{}
	var refused error
	switch {
	case serving <= n/2:
		what += fmt.Sprintf("; %d of %d servers refuse their folders", n-serving, n)
		refused = errors.New("the namespace has no majority")
	case restarted:
		refused = d.TryStart()
	}
	if refused == nil {
		if restarted {
			c = dial(t, d)
			o.b = c.Buffer("b")
		}
		v = o.settle(t, c, 15*time.Second)
	} else if v.errs = []error{refused}; serving > n/2 && !saysWhy(d.Log()) {
		t.Errorf("the daemon does not start, and does not say why:\n%s", d.Log())
	}
	story := fmt.Sprintf("copied at %d, restarted %v, %s", copied, restarted, what)
	if len(v.errs) > 0 && len(v.wrong) == 0 {
		story += fmt.Sprintf("; noticed: %.300v; then set back whole", errors.Join(v.errs...))
		servers.kill()
		if restarted {
			c.Close()
			d.Kill()
		}
		servers.putBack(n)
		if servers.start() < n {
			t.Fatalf("%s; and not all of the servers start then", story)
		}
		if restarted {
			d.Start()
			c = dial(t, d)
			o.b = c.Buffer("b")
		}
		v = o.settle(t, c, settleBound) // the folders are whole, so an error passes
	}
	if !v.whole() {
		t.Fatalf("%s\n%v\n%s", story, v, tail(d.Log()))
	}
	for range 10 { // of new files none is taken for one of before
		if err := o.fresh(ctx); err != nil {
			t.Fatalf("%s: writing afterwards: %v", story, err)
		}
	}
	if again := o.settle(t, c, settleBound); !again.whole() {
		t.Errorf("%s: after ten more files:\n%v\n%s", story, again, tail(d.Log()))
	}
	t.Logf("%s: %d under another name, %d named: %.200q", story, v.aside, len(v.named), v.named)
}

// saysWhy reports whether a log has the reason why its daemon does not start, since it ended with
// an error, or waits for a namespace that does not answer.
func saysWhy(log string) bool {
	return strings.Contains(log, "error:") || strings.Contains(log, "ERROR") || strings.Contains(log, "the namespace does not answer")
}

// tail returns the end of a daemon's log without the lines of the files that are well again.
func tail(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "namespace had lost is restored") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-12):], "")
}
