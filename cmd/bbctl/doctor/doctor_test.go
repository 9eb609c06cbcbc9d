package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client/admin"
	"forebay/cmd/bbctl/status"
)

// states returns the count of each state, and the whole output.
func states(all ...finding) (map[string]int, string) {
	count, text := map[string]int{}, ""
	for _, f := range all {
		count[f.State]++
		text += f.About + " " + f.State + ": " + f.What + "\n"
		if f.State == isFailed && f.Fix == "" {
			text += "AND NO FIX\n"
		}
	}
	return count, text
}

func wantStates(t *testing.T, name string, all []finding, ok, warning, failed int) {
	t.Helper()
	count, text := states(all...)
	if count[isOK] != ok || count[isWarning] != warning || count[isFailed] != failed || strings.Contains(text, "AND NO FIX") {
		t.Errorf("%s: %d ok, %d warnings, %d failures, want %d, %d and %d:\n%s", name, count[isOK], count[isWarning], count[isFailed], ok, warning, failed, text)
	}
}

func TestDoctorStatus(t *testing.T) {
	good := status.Daemon{Node: "n1", State: "ready"}
	good.NATS.Connected = true
	wantStates(t, "a good one", statusFindings(&good), 2, 0, 0)
	bad := status.Daemon{Node: "n1", State: "starting", Damaged: []string{"region 7"}}
	wantStates(t, "a bad one", statusFindings(&bad), 0, 0, 3)
	var forgotten status.Daemon
	if err := json.Unmarshal([]byte(`{"node": "n1", "state": "ready", "nats": {"connected": true},
		"buffers": [{"name": "b", "unexplained": [{"file": "7", "path": "f", "bytes": 9, "reason": "why"}]}]}`), &forgotten); err != nil {
		t.Fatal(err)
	}
	wantStates(t, "bytes that no entry explains", statusFindings(&forgotten), 2, 0, 1)
	var alone status.Daemon
	if err := json.Unmarshal([]byte(`{"node": "n1", "state": "ready", "nats": {"connected": true, "logs": [{"buffer": "b", "owner": "n1", "unheld": true, "lost": "2026-01-02T03:04:05Z"}]}}`), &alone); err != nil {
		t.Fatal(err)
	}
	wantStates(t, "a log that no other daemon holds, and that has lost changes", statusFindings(&alone), 2, 1, 1)
	var odd status.Daemon
	if err := json.Unmarshal([]byte(`{"node": "n1", "state": "ready", "nats": {"connected": true},
		"buffers": [{"name": "b", "backing": "file:///s", "stalled": 2, "stalled_for": 60}],
		"set_aside": [{"buffer": "torn", "files": 2, "bytes": 4096, "dirty": 1024, "reason": "a page is missing", "remedy": "put it back"}],
		"without_buffer": [{"buffer": "gone", "files": 3, "bytes": 2048, "remedy": "start it"}]}`), &odd); err != nil {
		t.Fatal(err)
	}
	wantStates(t, "a store that does not answer, a buffer that is forgotten, and one that is set aside", statusFindings(&odd), 2, 0, 4)
	if n := odd.Unexplained(); n != 3 {
		t.Errorf("%d files without an entry", n)
	}
	wantStates(t, "versions", []finding{versionFinding("bbctl", "1", "1"), versionFinding("bbctl", "1", "2")}, 1, 1, 0)
	wantStates(t, "memory", []finding{memoryFinding(80, 100), memoryFinding(81, 100)}, 1, 0, 1)
	wantStates(t, "mounting", []finding{
		mountFinding(true, true, true, false), mountFinding(true, true, false, true),
		mountFinding(false, true, true, true), mountFinding(true, false, true, true), mountFinding(true, true, false, false),
	}, 2, 3, 0)
	table := "# forebay /x forebay buffer=x 0 0\nproc /proc proc defaults 0 0\nforebay /a forebay buffer=a 0 0\nforebay /b forebay buffer=b,_netdev 0 0\n"
	wantStates(t, "fstab", fstabFinding(table, true), 0, 1, 0)
	wantStates(t, "fstab without a helper", fstabFinding(table, false), 0, 1, 0)
	wantStates(t, "fstab without buffers", fstabFinding("proc /proc proc defaults 0 0\n", false), 0, 0, 0)
	wantStates(t, "clocks", []finding{skewFinding("x", time.Minute), skewFinding("x", -time.Hour), clockFinding(0, nil), clockFinding(unix.TIME_ERROR, nil)}, 2, 1, 1)
}

func TestDoctorLimits(t *testing.T) {
	files := map[string]string{
		"/proc/7/limits": "Limit                     Soft Limit           Hard Limit           Units     \n" +
			"Max open files            1024                 524288               files     \n" +
			"Max locked memory         unlimited            unlimited            bytes     \n",
		"/proc/7/cgroup": "0::/system.slice/bbd.service\n",
		"/sys/fs/cgroup/system.slice/bbd.service/memory.max": "1073741824\n",
		"/proc/7/maps":   "7f00-7f01 rw-s 0 00:01 1 /run/huge/forebay/region\n",
		"/proc/7/mounts": "tmpfs /run tmpfs rw 0 0\ntmpfs /run/huge tmpfs rw,huge=within_size 0 0\n",
	}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	wantStates(t, "limits", limitFindings(7, read), 1, 2, 0)
	wantStates(t, "no process", limitFindings(0, read), 0, 0, 0)
	wantStates(t, "huge pages", []finding{hugeFinding(7, read)}, 1, 0, 0)
	files["/proc/7/mounts"] = "tmpfs /run/huge tmpfs rw,huge=never 0 0\n"
	wantStates(t, "without huge pages", []finding{hugeFinding(7, read)}, 0, 1, 0)
	files["/sys/kernel/mm/transparent_hugepage/shmem_enabled"] = "[always] within_size advise never deny force\n"
	wantStates(t, "huge pages everywhere", []finding{hugeFinding(7, read)}, 1, 0, 0)
	files["/sys/fs/cgroup/system.slice/bbd.service/memory.max"] = "max\n"
	wantStates(t, "without a limit", limitFindings(7, read), 1, 1, 0)
}

func TestDoctorNodes(t *testing.T) {
	node := func(name, state, server string) admin.Node {
		return admin.Node{Name: admin.NodeID(name), State: state, Server: server, Session: name + ":1", Fabric: name + ":2"}
	}
	reach := func(address string) error {
		if strings.HasPrefix(address, "far") {
			return errors.New("connection refused")
		}
		return nil
	}
	wantStates(t, "good ones", nodeFindings([]admin.Node{node("n1", "ready", "bbd 1"), node("n2", "ready", "bbd 1")}, "n1", reach), 1, 0, 0)
	refused := node("n4", "ready", "bbd 0")
	refused.Refused = "too old"
	none := node("n5", "ready", "bbd 1")
	none.Fabric = ""
	wantStates(t, "bad ones", nodeFindings([]admin.Node{
		node("n1", "ready", "bbd 1"), node("n2", "dead", "bbd 1"), node("n3", "ready", "bbd 2"), refused, none, node("far", "ready", "bbd 1"),
	}, "n1", reach), 1, 2, 4)
}

func TestDoctorPrivateTmp(t *testing.T) {
	t.Parallel()
	prolog := func(line string) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { return []byte("exec /usr/bin/bbctl slurm prolog" + line + "\n"), nil }
	}
	private := slurmConfig("JobContainerType = job_container/tmpfs\nProlog = /e/prolog\n")
	shown := places{"/var/lib/forebay/mem", "/run/forebay/bbd.sock"}
	wantStates(t, "none", privateFindings(slurmConfig("JobContainerType = job_container/none\n"), places{"/dev/shm/x", "/tmp/s"}, prolog("")), 0, 0, 0)
	wantStates(t, "all is seen", privateFindings(private, shown, prolog(" --mount=/bb")), 1, 0, 0)
	wantStates(t, "unknown", privateFindings(private, places{}, prolog("")), 1, 0, 0)
	wantStates(t, "newer", privateFindings(slurmConfig("NamespaceType = namespace/tmpfs\n"), places{memory: "/dev/shm/forebay"}, prolog("")), 0, 0, 1)
	wantStates(t, "all is hidden", privateFindings(private, places{"/dev/shm/forebay", "/tmp/bbd.sock"}, prolog(" --ready=1s --mount=/tmp/bb")), 0, 0, 3)
	wantStates(t, "quoted", privateFindings(private, shown, prolog(" '--mount=/tmp/a b'")), 0, 0, 1)
}

func TestDoctorSlurm(t *testing.T) {
	scripts := map[string]string{
		"/e/prolog": "exec /usr/bin/bbctl slurm prolog\n", "/e/epilog": "/usr/bin/bbctl slurm epilog\n", "/e/task-prolog": "bbctl slurm task-prolog\n",
		"/e/other": "true\n",
	}
	read := func(name string) ([]byte, error) {
		if text, ok := scripts[name]; ok {
			return []byte(text), nil
		}
		return nil, fmt.Errorf("%s: %w", name, os.ErrNotExist)
	}
	config := func(lines ...string) map[string]string {
		return slurmConfig("Configuration data as of 2026-11-21T18:00:00\n" + strings.Join(lines, "\n") + "\n")
	}
	wantStates(t, "way one", slurmFindings(config("Prolog   = /e/prolog", "Epilog = /e/epilog", "TaskProlog = /e/task-prolog", "PrologFlags = Alloc", "BurstBufferType = (null)"), read), 1, 0, 0)
	wantStates(t, "without Alloc", slurmFindings(config("Prolog = /e/prolog", "Epilog = /e/epilog", "TaskProlog = /e/task-prolog", "PrologFlags = (null)"), read), 1, 0, 1)
	wantStates(t, "half of it", slurmFindings(config("Prolog = /e/prolog", "Epilog = /e/other", "TaskProlog = /e/gone", "PrologFlags = Alloc"), read), 0, 1, 2)
	wantStates(t, "nothing", slurmFindings(config("Prolog = (null)", "BurstBufferType = (null)"), read), 0, 0, 1)
	wantStates(t, "way two", slurmFindings(config("BurstBufferType = burst_buffer/lua", "PrologSlurmctld = (null)"), read), 1, 0, 0)
	wired := []finding{{"slurm", isOK, "burst_buffer/lua", ""}}
	wantStates(t, "a daemon alone", aloneFindings([]finding{{"cluster", isSkipped, "", ""}}, wired), 0, 0, 1)
	wantStates(t, "a daemon alone, without Slurm", aloneFindings([]finding{{"cluster", isSkipped, "", ""}}, []finding{{"slurm", isSkipped, "", ""}}), 0, 0, 0)
	wantStates(t, "a cluster", aloneFindings([]finding{{"cluster", isOK, "", ""}}, wired), 0, 0, 0)
	wantStates(t, "way two with a trap", slurmFindings(config("BurstBufferType = burst_buffer/lua", "PrologSlurmctld = /x"), read), 1, 1, 0)
}

func TestPassthroughFinding(t *testing.T) {
	for _, c := range []struct {
		release string
		root    bool
		want    string
	}{
		{"6.9.0-1-amd64\n", true, "the kernel can"},
		{"6.18.44\n", true, "the kernel can"},
		{"7.0\n", true, "the kernel can"},
		{"6.9.0\n", false, "a mount by root"},
		{"6.8.12\n", true, "Linux 6.9"},
		{"5.15.0-rc1\n", true, "Linux 6.9"},
		{"", true, "Linux 6.9"},
	} {
		if f := passthroughFinding(c.release, c.root); f.State != isOK || !strings.Contains(f.What, c.want) {
			t.Errorf("%q, root %v: %+v", c.release, c.root, f)
		}
	}
}
