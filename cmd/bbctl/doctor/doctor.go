package doctor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/jobs"
	"forebay/cmd/bbctl/status"
	"forebay/internal/bb"
	"forebay/slurm/node"
)

// finding is one thing that doctor has looked at.
type finding struct {
	About string `json:"about"`
	State string `json:"state"` // ok, warning, failed, skipped
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

const (
	isOK      = "ok"
	isWarning = "warning"
	isFailed  = "failed"
	isSkipped = "skipped"
)

// doctorTime bounds each look that may hang.
const doctorTime = 5 * time.Second

func newDoctorCommand(a *app.App) *cobra.Command {
	var stores []string
	var clean, dryRun bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the setup of this node, and print remedies for its faults", Args: cobra.NoArgs,
		Long: `Looks at the daemon, its versions, memory limits and huge pages, the namespace, the
cluster's addresses and fabric, the stores behind buffers (and those of --store, by making
and destroying an empty buffer: reachable, writable, credentials), the clock, what mounting
buffers needs, and how Slurm is wired. Each finding that is not ok has a remedy. Exits with 7 if something
failed. A check that could not be made is skipped, and named.

With --clean it looks only for the unfinished work of killed daemons, in the stores of all
buffers and those of --store, and removes it: temporary files of stage-outs and flushes
(.forebay-*.tmp), and announced uploads. A daemon of this node or its cluster must answer:
it has the list of the daemons that are gone. Files of living daemons, of other clusters
and of users are listed, and stay. The command works with your own rights and credentials.`,
		Example: "  bbctl doctor\n  bbctl doctor --clean --store file:///lustre/me/out --dry-run\n  bbctl doctor --store file:///lustre/bb --store 's3://bucket/x?endpoint=https://s3.example.org'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case clean:
				return cleanStores(cmd.Context(), a, stores, dryRun)
			case dryRun:
				return app.Usage("--dry-run is for --clean: without it, doctor changes nothing")
			}
			all := examine(cmd.Context(), a, stores)
			err := a.Print(all, func() {
				rows := [][]string{}
				for _, f := range all {
					rows = append(rows, []string{f.State, f.About, f.What})
				}
				a.Table(rows)
				for _, f := range all {
					if f.Fix != "" && f.State != isOK {
						fmt.Fprintf(a.Out, "%s: %s\n", f.About, f.Fix)
					}
				}
			})
			if err != nil {
				return err
			}
			if n := failures(all); n > 0 {
				return app.Partly(fmt.Errorf("doctor: %d of %d findings failed", n, len(all)))
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&stores, "store", nil, "check this store too: file:///path or s3://bucket/prefix?…")
	cmd.Flags().BoolVar(&clean, "clean", false, "remove unfinished work of killed daemons from stores, and check nothing else")
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "with --clean: only list it")
	return cmd
}

func failures(all []finding) (n int) {
	for _, f := range all {
		if f.State == isFailed {
			n++
		}
	}
	return n
}

// examine makes all checks.
func examine(ctx context.Context, a *app.App, stores []string) []finding {
	var all []finding
	var seen places
	c, err := a.Connect(ctx, 0)
	if err != nil {
		all = append(all, finding{"daemon", isFailed, app.OneLineOf(app.ExplainStart(ctx, err)), "start it: systemctl start forebay-bbd; if it runs, give --socket"})
	} else {
		defer c.Close()
		all = append(all, examineDaemon(ctx, a, c, stores)...)
		seen = placesOf(ctx, c)
	}
	var clock unix.Timex
	state, err := unix.Adjtimex(&clock)
	all = append(all, clockFinding(state, err))
	all = append(all, examineMounts()...)
	wired := examineSlurm(ctx, seen)
	return append(append(all, wired...), aloneFindings(all, wired)...)
}

// aloneFindings say that Slurm's hooks will fail with a daemon that is in no cluster, since jobs
// are the cluster's.
func aloneFindings(daemon, wired []finding) []finding {
	alone := slices.ContainsFunc(daemon, func(f finding) bool { return f.About == "cluster" && f.State == isSkipped })
	if !alone || !slices.ContainsFunc(wired, func(f finding) bool { return f.About == "slurm" && f.State == isOK }) {
		return nil
	}
	return []finding{{"slurm", isFailed, "the daemon is alone, and gives no jobs of Slurm buffers: they are a cluster's", "set cluster.listen, and nats.servers to the daemon's own address: a cluster may be of one daemon"}}
}

func examineDaemon(ctx context.Context, a *app.App, c *client.Client, stores []string) []finding {
	info := c.Server()
	all := []finding{versionFinding("bbctl", a.Version, strings.TrimPrefix(info.Version, "bbd "))}
	var s status.Daemon
	text, err := admin.Status(ctx, c, "")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return append(all, finding{"daemon", isFailed, app.OneLineOf(err), "see its log"})
	}
	all = append(all, statusFindings(&s)...)
	var machine unix.Sysinfo_t
	if unix.Sysinfo(&machine) == nil {
		all = append(all, memoryFinding(s.Memory.Capacity, int64(machine.Totalram)*int64(machine.Unit)))
	}
	pid := daemonPid(info.Address)
	all = append(all, limitFindings(pid, os.ReadFile)...)
	all = append(all, hugeFinding(pid, os.ReadFile))
	nodes, err := admin.Nodes(ctx, c)
	switch {
	case errors.Is(err, client.ErrUnsupported):
		all = append(all, finding{"cluster", isSkipped, "the daemon is alone", ""})
	case err != nil:
		all = append(all, finding{"cluster", isFailed, app.OneLineOf(err), "see the daemon's log"})
	default:
		all = append(all, nodeFindings(nodes, string(info.Node), reach)...)
	}
	for _, url := range stores {
		all = append(all, examineStore(ctx, c, url))
	}
	specs, err := admin.Buffers(ctx, c)
	if err == nil {
		all = append(all, storeClocks(ctx, specs, stores)...)
	}
	if lives, err := admin.Lifetimes(ctx, c, ""); err == nil {
		if list := jobs.Orphans(lives, specs); len(list) > 0 {
			all = append(all, finding{"orphans", isWarning, bb.Count(len(list), "buffer") + " of jobs that are gone cannot be saved yet", "see bbctl orphans for the reasons"})
		}
	}
	return all
}

func versionFinding(about, ours, theirs string) finding {
	if ours != theirs {
		return finding{about, isWarning, fmt.Sprintf("version %s, and the daemon is %s", ours, theirs), "install the same release"}
	}
	return finding{about, isOK, "version " + ours + ", as the daemon", ""}
}

// statusFindings are findings from the daemon's status.
func statusFindings(s *status.Daemon) []finding {
	all := []finding{{"daemon", isOK, "node " + s.Node + " is " + s.State, ""}}
	if s.State != "ready" {
		all[0] = finding{"daemon", isFailed, "node " + s.Node + " is " + s.State, "see its log"}
	}
	switch t := s.NATS.Trouble; {
	case t != nil:
		all = append(all, finding{"namespace", isFailed, t.Line(), app.OneLine(t.Remedy)})
	case s.NATS.Connected:
		all = append(all, finding{"namespace", isOK, "answers, at " + s.NATS.URL, ""})
	default: // as an older daemon has it
		all = append(all, finding{"namespace", isFailed, s.NATS.URL + " cannot be reached", "start the daemons that nats.servers names, or correct nats.url"})
	}
	for _, line := range s.LostChanges() {
		all = append(all, finding{"namespace", isFailed, line, "compare the names with those that the jobs expect; files in memory come back; the next start of the daemon forgets this message"})
	}
	for _, line := range s.Unheld() {
		all = append(all, finding{"namespace", isWarning, line, "see bbctl nodes: start the daemons that are down, or accept it: names are then as safe as the namespace's servers"})
	}
	for _, d := range s.Damaged {
		all = append(all, finding{"memory", isFailed, "damaged: " + d, "see docs/operations.md"})
	}
	for _, f := range s.Foreign {
		what := fmt.Sprintf("%s of %s is of node %s and namespace %s, and holds %s: %s", f.Path, app.Size(f.Bytes), f.Node, f.Namespace, app.Size(f.Held), strings.Join(f.Buffers, ", "))
		all = append(all, finding{"memory", isFailed, what, f.Remedy})
	}
	for _, w := range s.WithoutBuffer {
		what := fmt.Sprintf("memory holds %s in %s of buffer %s, which the namespace does not have", app.Size(w.Bytes), bb.Count(w.Files, "file"), w.Buffer)
		all = append(all, finding{"namespace", isFailed, what, w.Remedy})
	}
	for _, a := range s.SetAside {
		all = append(all, finding{"namespace", isFailed, a.Line(), app.OneLine(a.Remedy)})
	}
	if n := s.Unexplained(); n > 0 {
		all = append(all, finding{"namespace", isFailed, status.UnexplainedText(n), "see bbctl status, and docs/operations.md"})
	}
	for _, b := range s.Buffers {
		if line := b.Store.Line(); line != "" {
			all = append(all, finding{"store", isFailed, b.Name + ": " + line, "check the store at " + b.Backing})
		} else if b.Stalled > 0 {
			all = append(all, finding{"store", isFailed, fmt.Sprintf("%s: %s had no answer for %s", b.Name, bb.Count(b.Stalled, "flush has", "flushes have"), app.Age(b.StalledFor)), "check the store at " + b.Backing})
		} else if b.Conflicts > 0 {
			what := b.Name + ": " + bb.Count(b.Conflicts, "file is", "files are") + " in conflict with files of the store that the buffer did not write"
			all = append(all, finding{"store", isFailed, what, "bbctl drain " + b.Name + " lists them; bbctl drain --overwrite bb://" + b.Name + "/PATH replaces the store's, bbctl stage-in takes it"})
		} else if b.LastError != nil {
			all = append(all, finding{"store", isFailed, fmt.Sprintf("%s, attempt %d: %s", b.Name, b.LastError.Attempts, b.LastError.Reason), "repair the store at " + b.Backing + ": flushes go on being tried"})
		} else if b.Backing != "" {
			all = append(all, finding{"store", isOK, b.Name + ": no failures", ""})
		}
	}
	return all
}

// memoryFinding compares the daemon's memory with the machine's, since it is mapped, shared memory,
// which swaps or is killed for like any other.
func memoryFinding(tier, machine int64) finding {
	what := fmt.Sprintf("%s of the machine's %s", app.Size(tier), app.Size(machine))
	if machine > 0 && tier > machine*8/10 {
		return finding{"memory", isFailed, what, "set memory.size to 80% or less: jobs need the rest"}
	}
	return finding{"memory", isOK, what, ""}
}

// daemonPid returns the process that serves a unix socket, or 0 if it is unknown.
func daemonPid(address string) int {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return 0
	}
	conn, err := net.DialTimeout("unix", path, doctorTime)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// limitFindings look at the limits of the daemon's process (proc_pid_limits(5)) and of its
// control group.
func limitFindings(pid int, read func(string) ([]byte, error)) []finding {
	text, err := read(fmt.Sprintf("/proc/%d/limits", pid))
	if pid == 0 || err != nil {
		return []finding{{"limits", isSkipped, "the daemon's process cannot be inspected from here", "run it on the node, as root"}}
	}
	var all []finding
	for _, l := range []struct {
		name  string
		least uint64
		unit  string
		fix   string
	}{
		{"Max open files", 65536, "", "LimitNOFILE=1048576 in the daemon's unit"},
		{"Max locked memory", math.MaxUint64, " bytes", "LimitMEMLOCK=infinity in the daemon's unit: InfiniBand registers all of its memory"},
	} {
		limit, ok := procLimit(string(text), l.name)
		what := strings.ToLower(l.name[4:]) + ": " + limit + l.unit
		n, err := strconv.ParseUint(limit, 10, 64)
		switch {
		case !ok:
			continue
		case limit == "unlimited" || err == nil && n >= l.least:
			all = append(all, finding{"limits", isOK, what, ""})
		default:
			all = append(all, finding{"limits", isWarning, what, l.fix})
		}
	}
	if group, ok := memoryGroup(pid, read); ok {
		if limit, err := read(filepath.Join("/sys/fs/cgroup", group, "memory.max")); err == nil && strings.TrimSpace(string(limit)) != "max" {
			all = append(all, finding{"limits", isWarning, "the control group " + group + " is limited to " + strings.TrimSpace(string(limit)) + " bytes", "MemoryMax=infinity in the daemon's unit: regions count there"})
		}
	}
	return all
}

// procLimit returns the soft limit of a name.
func procLimit(text, name string) (string, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				return f[0], true
			}
		}
	}
	return "", false
}

// memoryGroup returns the daemon's control group, of version 2.
func memoryGroup(pid int, read func(string) ([]byte, error)) (string, bool) {
	text, err := read(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", false
	}
	group, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "0::")
	return group, ok && !strings.Contains(group, "\n")
}

// hugeFinding looks whether the daemon's regions lie on a mount with huge pages.
func hugeFinding(pid int, read func(string) ([]byte, error)) finding {
	const about = "huge pages"
	maps, err := read(fmt.Sprintf("/proc/%d/maps", pid))
	mounts, err2 := read(fmt.Sprintf("/proc/%d/mounts", pid))
	if pid == 0 || err != nil || err2 != nil {
		return finding{about, isSkipped, "the daemon's process cannot be inspected from here", "run it on the node, as root"}
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "tmpfs" || !strings.Contains(f[3], "huge=") || strings.Contains(f[3], "huge=never") {
			continue
		}
		if strings.Contains(string(maps), " "+f[1]+"/") {
			return finding{about, isOK, "regions lie on " + f[1] + " (" + f[3] + ")", ""}
		}
	}
	all, err := read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	if err == nil && (strings.Contains(string(all), "[always]") || strings.Contains(string(all), "[force]")) {
		return finding{about, isOK, "all shared memory has them", ""}
	}
	return finding{about, isWarning, "the daemon's memory has none: bursts begin ten times as slowly in fresh memory", "run bbd as root with memory.mount: auto, or set memory.dir to a tmpfs mounted with huge=within_size"}
}

// reach reports whether a server listens at an address.
func reach(address string) error {
	conn, err := net.DialTimeout("tcp", address, doctorTime)
	if err == nil {
		conn.Close()
	}
	return err
}

// nodeFindings check the cluster from the daemon's view, and how its members are reached.
func nodeFindings(nodes []admin.Node, self string, reach func(string) error) []finding {
	var all []finding
	own := ""
	for _, n := range nodes {
		if string(n.Name) == self {
			own = n.Server
		}
	}
	good := 0
	for _, n := range nodes {
		name := string(n.Name)
		switch {
		case n.Refused != "":
			all = append(all, finding{"cluster", isFailed, name + " is not asked: " + n.Refused, "upgrade the older side: see bbctl nodes"})
			continue
		case n.State == "dead" || n.State == "suspect":
			all = append(all, finding{"cluster", isFailed, name + " is " + n.State, "start it; if it will not return: bbctl node forget " + name})
			continue
		case n.Server != own:
			all = append(all, finding{"cluster", isWarning, name + " runs " + n.Server + ", and this node " + own, "finish the upgrade"})
		}
		for what, address := range map[string]string{"sessions": n.Session, "fabric": n.Fabric} {
			if address == "" {
				continue
			}
			if err := reach(address); err != nil {
				all = append(all, finding{what, isFailed, name + ": " + app.OneLineOf(err), "open " + address + " between the nodes, or correct listen." + map[string]string{"sessions": "tcp", "fabric": "fabric"}[what] + " there"})
			} else {
				good++
			}
		}
		if n.Fabric == "" {
			all = append(all, finding{"fabric", isWarning, name + " has none: its bytes travel in messages", "set listen.fabric there"})
		}
	}
	slices.SortFunc(all, func(a, b finding) int { return strings.Compare(a.About+a.What, b.About+b.What) })
	return append([]finding{{"cluster", isOK, fmt.Sprintf("%s known, %s", bb.Count(len(nodes), "node is", "nodes are"), bb.Count(good, "address answers", "addresses answer")), ""}}, all...)
}

// examineStore has the daemon look at a store, as it does when a buffer is made.
func examineStore(ctx context.Context, c *client.Client, url string) finding {
	name := "doctor-" + strings.ToLower(rand.Text()[:12])
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: name, Backing: url, Shared: true}); err != nil {
		fix := "repair the store, or correct the credentials that the daemon finds: see docs/configuration.md, s3"
		var e *bb.Error
		if errors.As(err, &e) && e.Remedy != "" {
			fix = e.Remedy
		}
		return finding{"store", isFailed, app.OneLineOf(err), fix}
	}
	if err := admin.DestroyBuffer(ctx, c, name); err != nil {
		return finding{"store", isFailed, app.OneLineOf(err), "bbctl buffer destroy " + name}
	}
	return finding{"store", isOK, url + ": reachable and writable", ""}
}

// maxSkew is how far a store's clock may be off. S3 refuses signatures that are 15 minutes
// old or young.
const maxSkew = 5 * time.Minute

// storeClocks compare this node's clock with those of object stores.
func storeClocks(ctx context.Context, specs []admin.BufferSpec, more []string) []finding {
	seen := map[string]bool{}
	var all []finding
	for i := range specs {
		more = append(more, specs[i].Backing)
	}
	for _, backing := range more {
		where, err := bb.ParseBacking(backing)
		if err != nil {
			continue
		}
		endpoint := where.Endpoint()
		if endpoint == "" || seen[endpoint] {
			continue
		}
		seen[endpoint] = true
		all = append(all, storeClock(ctx, endpoint))
	}
	return all
}

func storeClock(ctx context.Context, endpoint string) finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, endpoint, nil)
	if err != nil {
		return finding{"clock", isFailed, app.OneLineOf(err), "correct the endpoint"}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return finding{"store", isFailed, app.OneLineOf(err), "repair the network to " + endpoint}
	}
	answer.Body.Close()
	said, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return finding{"clock", isSkipped, endpoint + " sends no time", ""}
	}
	return skewFinding(endpoint, time.Until(said))
}

func skewFinding(endpoint string, skew time.Duration) finding {
	what := fmt.Sprintf("%s differs by %v", endpoint, skew.Abs().Round(time.Second))
	if skew.Abs() > maxSkew {
		return finding{"clock", isFailed, what, "set the clock (chrony): the store refuses requests that seem old"}
	}
	return finding{"clock", isOK, what, ""}
}

// clockFinding reports whether the clock is synchronized (adjtimex(2)).
func clockFinding(state int, err error) finding {
	switch {
	case err != nil:
		return finding{"clock", isSkipped, app.OneLineOf(err), ""}
	case state == unix.TIME_ERROR:
		return finding{"clock", isWarning, "no time service keeps it right", "run chrony or another NTP service"}
	}
	return finding{"clock", isOK, "it is kept right", ""}
}

// examineSlurm looks how Slurm is wired, if it is here.
func examineSlurm(ctx context.Context, seen places) []finding {
	if _, err := exec.LookPath("scontrol"); err != nil {
		return []finding{{"slurm", isSkipped, "scontrol is not on this node", ""}}
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "scontrol", "show", "config").Output()
	if err != nil {
		return []finding{{"slurm", isSkipped, "slurmctld does not answer: " + app.OneLineOf(err), ""}}
	}
	config := slurmConfig(string(out))
	all := append(slurmFindings(config, os.ReadFile), privateFindings(config, seen, os.ReadFile)...)
	if left, _ := filepath.Glob(filepath.Join(node.DefaultDir, "*.left")); len(left) > 0 {
		all = append(all, finding{"slurm", isWarning, fmt.Sprintf("the daemon has not received the end of %d jobs on this node", len(left)), "bbctl slurm deliver"})
	}
	return all
}

// slurmConfig reads the output of "scontrol show config".
func slurmConfig(text string) map[string]string {
	config := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, "="); ok {
			config[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return config
}

// slurmFindings look at Slurm's configuration. A site has the prolog and epilog, or
// burst_buffer/lua, or both.
func slurmFindings(c map[string]string, read func(string) ([]byte, error)) []finding {
	set := func(name string) bool { return c[name] != "" && c[name] != "(null)" && c[name] != "N/A" }
	var all []finding
	lua := c["BurstBufferType"] == "burst_buffer/lua"
	calls := 0
	const install = "bbctl slurm install, and the lines that it prints to slurm.conf"
	for _, hook := range []struct{ name, verb string }{
		{"Prolog", "slurm prolog"}, {"Epilog", "slurm epilog"}, {"TaskProlog", "slurm task-prolog"},
	} {
		value := c[hook.name]
		if values := c[hook.name+"[0]"]; values != "" { // newer releases have several
			value = values
		}
		if value == "" || value == "(null)" {
			continue
		}
		text, err := read(value)
		switch {
		case err != nil:
			all = append(all, finding{"slurm", isFailed, fmt.Sprintf("%s: %v", hook.name, err), install})
		case strings.Contains(string(text), hook.verb):
			calls++
		default:
			all = append(all, finding{"slurm", isWarning, hook.name + "=" + value + " does not call bbctl " + hook.verb + " itself", "check that its own scripts do, or " + install})
		}
	}
	switch {
	case calls == 3:
		all = append(all, finding{"slurm", isOK, "prolog, epilog and task-prolog call bbctl", ""})
	case calls > 0:
		all = append(all, finding{"slurm", isFailed, fmt.Sprintf("only %d of prolog, epilog and task-prolog call bbctl", calls), install})
	case lua:
		all = append(all, finding{"slurm", isOK, "burst_buffer/lua", ""})
	default:
		all = append(all, finding{"slurm", isFailed, "neither its prolog nor burst_buffer/lua gives jobs buffers", install + "; or bbctl slurm install-lua"})
	}
	if calls > 0 && !strings.Contains(c["PrologFlags"], "Alloc") {
		all = append(all, finding{"slurm", isFailed, "PrologFlags has no Alloc: prologs run where the first step starts, and epilogs on all nodes", "PrologFlags=Alloc in slurm.conf"})
	}
	if lua && (set("PrologSlurmctld") || set("EpilogSlurmctld")) {
		all = append(all, finding{"slurm", isWarning, "PrologSlurmctld or EpilogSlurmctld beside burst_buffer/lua hold up each other's ends", "use Prolog and Epilog"})
	}
	return all
}
