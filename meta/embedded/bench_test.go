package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/embedded/elections"
	"forebay/meta/namespace"
	"forebay/meta/txn"
)

// bench is servers, each a process of its own, so that the processor time of each is measured apart
// from that of the others and of the clients.
type bench struct {
	*testing.B
	copies  int
	urls    []string
	options []benchOptions
	servers []*benchServer
	files   atomic.Uint64 // names that were used
}

// benchServer is one of them. It answers each line with the streams that it leads.
type benchServer struct {
	cmd    *exec.Cmd
	ask    io.WriteCloser
	answer *bufio.Reader
}

// benchOptions travel to it in the environment.
type benchOptions struct {
	Name, Dir, Listen, Route string
	Routes                   []string
	Sync                     time.Duration // interval; 0: the default, less: before each acknowledgement
}

const benchEnv = "FOREBAY_BENCH_SERVER"

// runBenchServer is its main.
func runBenchServer() {
	var o benchOptions
	err := json.Unmarshal([]byte(os.Getenv(benchEnv)), &o)
	options := Options{Name: o.Name, Dir: o.Dir, Listen: o.Listen, Key: clusterKey, SyncInterval: max(o.Sync, 0), SyncAlways: o.Sync < 0}
	if len(o.Routes) > 1 {
		options.Cluster = &Cluster{Listen: o.Route, Routes: o.Routes}
	}
	var s *Server
	if err == nil {
		s, err = Start(context.Background(), options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var led []string
		for _, name := range s.streams() {
			if len(o.Routes) < 2 || s.server().JetStreamIsStreamLeader("$G", name) {
				led = append(led, name)
			}
		}
		fmt.Println(strings.Join(led, " "))
	}
	s.Shutdown()
}

func startBench(b *testing.B, servers, copies int) *bench {
	return startBenchOf(b, servers, copies, benchOptions{})
}

// startBenchOf starts servers that share the options of like which are not each server's own.
func startBenchOf(b *testing.B, servers, copies int, like benchOptions) *bench {
	s := &bench{B: b, copies: copies}
	dir := b.TempDir()
	all := make([]benchOptions, servers)
	s.options = all
	var routes []string
	for i := range all {
		name := fmt.Sprint("s", i)
		all[i] = like
		all[i].Name, all[i].Dir, all[i].Listen, all[i].Route = name, filepath.Join(dir, name), freeAddress(b), freeAddress(b)
		routes = append(routes, all[i].Route)
		s.urls = append(s.urls, "nats://"+all[i].Listen)
	}
	for i := range all {
		all[i].Routes = routes
		s.servers = append(s.servers, s.start(all[i]))
	}
	return s
}

func (s *bench) start(o benchOptions) *benchServer {
	s.Helper()
	env, err := json.Marshal(o)
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchEnv+"="+string(env))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	server := &benchServer{cmd: cmd, ask: in, answer: bufio.NewReader(out)}
	s.Cleanup(server.stop)
	return server
}

func (s *benchServer) stop() {
	s.ask.Close()
	_ = s.cmd.Wait()
}

// leads returns the streams that a server leads.
func (s *bench) leads(server *benchServer) []string {
	s.Helper()
	if _, err := io.WriteString(server.ask, "\n"); err != nil {
		s.Fatal(err)
	}
	line, err := server.answer.ReadString('\n')
	if err != nil {
		s.Fatal(err)
	}
	return strings.Fields(line)
}

// leader returns which server leads a buffer's stream.
func (s *bench) leader(buffer string) int {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for i, server := range s.servers {
			if slices.ContainsFunc(s.leads(server), func(name string) bool { return strings.HasPrefix(name, "KV_forebay-"+buffer+"-") }) {
				return i
			}
		}
	}
	s.Fatalf("nobody leads %s", buffer)
	return 0
}

// connect returns a connection for each of many daemons, to any of the servers.
func (s *bench) connect(b *testing.B, many int) []*meta.Meta {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	all := make([]*meta.Meta, many)
	var group errgroup.Group
	for i := range all {
		group.Go(func() (err error) {
			all[i], err = meta.Connect(ctx, meta.Options{URLs: s.urls, ClusterKey: clusterKey, Replicas: s.copies})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return all
}

func closeAll(all []*meta.Meta) {
	for _, m := range all {
		m.Close()
	}
}

func (s *bench) buffers(b *testing.B, m *meta.Meta, name string, many int) (names []string) {
	b.Helper()
	for i := range many {
		names = append(names, fmt.Sprint(name, s.files.Add(1), "-", i))
		if _, err := m.CreateBuffer(b.Context(), bb.Buffer{Name: names[i]}); err != nil {
			b.Fatal(err)
		}
	}
	return names
}

func (s *bench) create(ctx context.Context, ns *txn.Tree, dir bb.DirID) (name string, err error) {
	n := s.files.Add(1)
	e := bb.Entry{
		Parent: dir, Name: "part-" + strconv.FormatUint(n, 10) + ".parquet", Type: bb.TypeFile, File: bb.FileID(n),
		Generation: 1, Size: 4096, Checksum: n, Holders: []bb.NodeID{"node-1"}, Mode: 0o644, UID: 1000, GID: 1000,
	}
	_, err = ns.Create(ctx, e)
	return e.Name, err
}

// alone measures an operation with nothing else under way.
func alone(b *testing.B, do func() error) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-p50")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "ms-p99")
}

// together measures an operation of many daemons at once, 64 under way, and the
// processor time that it costs the servers: the one that leads the first buffer, and
// each of the others in the mean.
func (s *bench) together(b *testing.B, buffers []string, do func(ctx context.Context, ns *txn.Tree) error) {
	b.Helper()
	const daemons, underWay = 16, 64
	all := s.connect(b, daemons)
	defer closeAll(all)
	var spaces []*txn.Tree
	for i := range underWay {
		ns, err := all[i%daemons].Namespace(b.Context(), buffers[i%len(buffers)])
		if err != nil {
			b.Fatal(err)
		}
		spaces = append(spaces, ns)
	}
	lead := s.leader(buffers[0])
	before := s.processor()
	var next atomic.Int64
	b.SetParallelism(max(1, underWay/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		ns := spaces[int(next.Add(1))%len(spaces)]
		for pb.Next() {
			if err := do(b.Context(), ns); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	var others time.Duration
	for i, after := range s.processor() {
		used := after - before[i]
		if i == lead {
			b.ReportMetric(used.Seconds()*1e6/float64(b.N), "µs-leader")
		} else {
			others += used
		}
	}
	if n := len(s.servers) - 1; n > 0 {
		b.ReportMetric(others.Seconds()*1e6/float64(b.N*n), "µs-other")
	}
}

// processor returns the processor time that each server has used.
func (s *bench) processor() (used []time.Duration) {
	s.Helper()
	for _, server := range s.servers {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server.cmd.Process.Pid))
		if err != nil {
			s.Fatal(err)
		}
		// The name may hold blanks. Behind it utime and stime are the 12th and 13th field, in
		// hundredths of a second (proc(5)).
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		var ticks int64
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				s.Fatal(err)
			}
			ticks += n
		}
		used = append(used, time.Duration(ticks)*10*time.Millisecond)
	}
	return used
}

// BenchmarkServers measures a namespace on 1, 3 and 5 embedded servers on loopback, with the
// cluster key. docs/scaling.md explains it.
func BenchmarkServers(b *testing.B) {
	for _, shape := range []struct{ servers, copies int }{{1, 1}, {3, 3}, {5, 3}, {5, 5}} {
		b.Run(fmt.Sprintf("servers=%d/copies=%d", shape.servers, shape.copies), func(b *testing.B) {
			s := startBench(b, shape.servers, shape.copies)
			one := s.connect(b, 1)
			defer closeAll(one)
			buffer := s.buffers(b, one[0], "one", 1)
			ns, err := one[0].Namespace(b.Context(), buffer[0])
			if err != nil {
				b.Fatal(err)
			}
			s.latencies(b, ns)
			s.rates(b, buffer, s.buffers(b, one[0], "many", 12))
			for _, many := range []int{100, 400} {
				b.Run(fmt.Sprint("start/daemons=", many), func(b *testing.B) {
					for b.Loop() {
						all := s.connect(b, many)
						var group errgroup.Group
						for _, m := range all {
							group.Go(func() error { _, err := m.IDs().Claim(b.Context()); return err })
						}
						if err := group.Wait(); err != nil {
							b.Fatal(err)
						}
						closeAll(all)
					}
				})
			}
			s.queue(b, one[0])
			s.spread(b, one[0])
		})
	}
}

// BenchmarkSync measures creates, one and 64 under way, on servers that sync their files to
// the disk at intervals and on servers that sync before each acknowledgement. The
// probe beside them is one append of 4 KiB and its fdatasync, on the same disk.
func BenchmarkSync(b *testing.B) {
	b.Run("probe", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		page := make([]byte, 4096)
		alone(b, func() error {
			if _, err := f.Write(page); err != nil {
				return err
			}
			return syscall.Fdatasync(int(f.Fd()))
		})
	})
	for _, servers := range []int{1, 3, 5} {
		for _, every := range []time.Duration{10 * time.Second, time.Second, 100 * time.Millisecond, -1} {
			b.Run(fmt.Sprintf("servers=%d/every=%v", servers, max(every, 0)), func(b *testing.B) {
				s := startBenchOf(b, servers, servers, benchOptions{Sync: every})
				one := s.connect(b, 1)
				defer closeAll(one)
				buffer := s.buffers(b, one[0], "sync", 1)
				ns, err := one[0].Namespace(b.Context(), buffer[0])
				if err != nil {
					b.Fatal(err)
				}
				create := func(ctx context.Context, ns *txn.Tree) error {
					_, err := s.create(ctx, ns, bb.RootDir)
					return err
				}
				b.Run("one", func(b *testing.B) {
					alone(b, func() error { return create(b.Context(), ns) })
				})
				b.Run("many", func(b *testing.B) { s.together(b, buffer, create) })
			})
		}
	}
}

func (s *bench) latencies(b *testing.B, ns *txn.Tree) {
	b.Run("create", func(b *testing.B) {
		alone(b, func() error { _, err := s.create(b.Context(), ns, bb.RootDir); return err })
	})
	b.Run("lookup", func(b *testing.B) {
		name, err := s.create(b.Context(), ns, bb.RootDir)
		if err != nil {
			b.Fatal(err)
		}
		alone(b, func() error { _, err := ns.Lookup(b.Context(), bb.RootDir, name); return err })
	})
	for _, depth := range []int{1, 4, 8} {
		b.Run(fmt.Sprint("resolve/depth=", depth), func(b *testing.B) {
			path, dir := "", bb.RootDir
			if depth > 1 {
				path = strings.Repeat("d/", depth-1)
				d, err := ns.MkdirAll(b.Context(), strings.TrimSuffix(path, "/"), namespace.Owner{})
				if err != nil {
					b.Fatal(err)
				}
				dir = d.Dir
			}
			name, err := s.create(b.Context(), ns, dir)
			if err != nil {
				b.Fatal(err)
			}
			alone(b, func() error { _, err := ns.Resolve(b.Context(), path+name); return err })
		})
	}
}

func (s *bench) rates(b *testing.B, one, many []string) {
	for _, on := range []struct {
		name    string
		buffers []string
	}{{"buffers=1", one}, {"buffers=12", many}} {
		b.Run("creates/"+on.name, func(b *testing.B) {
			s.together(b, on.buffers, func(ctx context.Context, ns *txn.Tree) error {
				_, err := s.create(ctx, ns, bb.RootDir)
				return err
			})
		})
		b.Run("lookups/"+on.name, func(b *testing.B) {
			var names sync.Map // by namespace
			s.together(b, on.buffers, func(ctx context.Context, ns *txn.Tree) error {
				name, ok := names.Load(ns)
				if !ok {
					made, err := s.create(ctx, ns, bb.RootDir)
					if err != nil {
						return err
					}
					name, _ = names.LoadOrStore(ns, made)
				}
				_, err := ns.Lookup(ctx, bb.RootDir, name.(string))
				return err
			})
		})
	}
}

// queue starts many daemons that wait for tasks, as all do, and reports the cost for all the
// servers, in thousandths of one processor for each daemon, while there is nothing to do.
func (s *bench) queue(b *testing.B, m *meta.Meta) {
	const daemons, first, lasts = 200, 15 * time.Second, 15 * time.Second
	b.Run(fmt.Sprint("queue/daemons=", daemons), func(b *testing.B) {
		cost := func() time.Duration {
			before := s.processor()
			time.Sleep(lasts)
			var used time.Duration
			for i, after := range s.processor() {
				used += after - before[i]
			}
			return used
		}
		var without, with time.Duration
		rounds := 0
		for b.Loop() {
			without += cost()
			ctx, stop := context.WithCancel(b.Context())
			var waiting sync.WaitGroup
			for i := range daemons {
				node := bb.NodeID(fmt.Sprint("n", s.files.Add(1), "-", i))
				for _, of := range []bb.NodeID{"", node} {
					waiting.Go(func() { _, _ = m.Operations().Next(ctx, of, node) })
				}
			}
			time.Sleep(first)
			with += cost()
			stop()
			waiting.Wait()
			rounds++
		}
		each := func(used time.Duration) float64 {
			return used.Seconds() * 1000 / lasts.Seconds() / float64(rounds)
		}
		b.ReportMetric(each(without), "m-without")
		b.ReportMetric(each(with-without)/daemons, "m-daemon")
	})
}

// spread reports how many of 24 buffers one server leads at most, after they were made, and after
// each server in turn was started again.
func (s *bench) spread(b *testing.B, m *meta.Meta) {
	const count = 24
	most := func(buffers []string) (most int) {
		led := make([]int, len(s.servers))
		for _, name := range buffers {
			led[s.leader(name)]++
		}
		return slices.Max(led)
	}
	b.Run("leaders", func(b *testing.B) {
		var made, restarted, rounds float64
		for b.Loop() {
			buffers := s.buffers(b, m, "led", count)
			made += float64(most(buffers))
			if len(s.servers) > 1 {
				for i := range s.servers {
					s.servers[i].stop()
					s.servers[i] = s.start(s.options[i])
					s.leads(s.servers[i]) // it answers when it has started
					time.Sleep(settle)
				}
				restarted += float64(most(buffers))
			}
			rounds++
			for _, name := range buffers {
				if err := m.DestroyBuffer(b.Context(), name); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(made/rounds, "most-made")
		b.ReportMetric(restarted/rounds, "most-restarted")
	})
}

// settle is the time between the start of a server and the stop of the next. It is longer than the election of a leader takes.
const settle = 2 * elections.Longest
