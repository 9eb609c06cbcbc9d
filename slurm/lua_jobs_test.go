package slurm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/internal/bbdtest"
	"forebay/internal/slurmtest"
	"forebay/slurm"
)

// luaCluster is a real Slurm with burst_buffer/lua, and folders of a user's.
type luaCluster struct {
	*slurmtest.Cluster
	t      *testing.T
	bbctl  string
	folder string
	store  string
}

func startLua(t *testing.T) *luaCluster {
	t.Helper()
	s := slurm.Settings{
		Folder: "@DIR@/etc", Cluster: "test", Words: []string{"BB"}, Pools: []string{"memory"}, Default: "memory", Granule: 1 << 20,
		Bbctl:        []string{"@BBCTL@", "--socket", "tcp://127.0.0.11:7481,tcp://127.0.0.12:7481", "--key-file", "@DIR@/etc/key"},
		StageInLimit: 5,
	}
	files := s.Files()
	// Slurm asks for the pools when it starts, and then every 30 seconds.
	files["pools.json"] = `{"pools":[{"id":"memory","units":"bytes","granularity":1048576,"quantity":768,"free":768}]}`
	files["job_submit.lua"] = `dofile("@DIR@/etc/` + slurm.SubmitFile + `")` + "\n"
	c := slurmtest.Start(t, slurmtest.Options{Conf: s.SlurmConf(), Files: files})
	l := &luaCluster{Cluster: c, t: t, bbctl: bbdtest.Bbctl(t), folder: filepath.Join(c.Dir, "etc"), store: filepath.Join(c.Work, "store")}
	s.Folder = l.folder
	for i, word := range s.Bbctl {
		s.Bbctl[i] = strings.NewReplacer("@DIR@", c.Dir, "@BBCTL@", l.bbctl).Replace(word)
	}
	key := strings.Repeat("0123456789abcdef", 4)
	if err := os.WriteFile(filepath.Join(l.folder, "key"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	c.Run("root", "chown", "slurm", l.folder, l.folder+"/key", l.folder+"/pools.json")
	l.verb("pools")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.Try("root", "ls", "-laR", l.store)
			t.Log(out)
			files, _ := filepath.Glob(filepath.Join(l.folder, "[0-9]*.json"))
			for _, file := range files {
				text, _ := os.ReadFile(file)
				t.Logf("%s:\n%s", file, text)
			}
		}
	})
	c.Run(slurmtest.Alice, "mkdir", "-p", l.store+"/in")
	l.write("in/a", "what was there")
	return l
}

// verb runs a verb as the user that slurmctld runs as.
func (l *luaCluster) verb(args ...string) string {
	l.t.Helper()
	return l.Run("slurm", append([]string{
		l.bbctl, "--socket", "tcp://127.0.0.12:7481", "--key-file", l.folder + "/key", "slurm",
	}, append(args, "--folder", l.folder)...)...)
}

// write makes a file of Alice's in the store.
func (l *luaCluster) write(name, text string) {
	l.t.Helper()
	l.Run(slurmtest.Alice, "sh", "-c", fmt.Sprintf("mkdir -p $(dirname %[1]s/%[2]s); printf '%%s' '%[3]s' >%[1]s/%[2]s", l.store, name, text))
}

func (l *luaCluster) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(l.store, name))
	return string(text)
}

// gone waits until nothing is left of a job's buffer, in Slurm, or with the daemons.
func (l *luaCluster) gone(job string) {
	l.t.Helper()
	l.Until("job "+job+" has no buffer any more", func() bool {
		state := l.Job(job)["BurstBufferState"]
		return state == "complete" || state == ""
	})
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(l.buffers()), &list); err != nil {
		l.t.Fatal(err)
	}
	for _, b := range list {
		if strings.HasPrefix(b.Name, "job-"+job+"-") {
			l.t.Errorf("there is still %s", b.Name)
		}
	}
}

// buffers lists all buffers, as JSON.
func (l *luaCluster) buffers() string {
	l.t.Helper()
	out, err := l.Nodes[0].Bbctl("root", "buffer", "list", "--json")
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// TestLuaWay runs a job that copies in, computes, and copies out.
func TestLuaWay(t *testing.T) {
	c := startLua(t)
	job := c.Submit(slurmtest.Alice, strings.NewReplacer("STORE", c.store, "BBCTL", c.bbctl).Replace(`#BB jobbb capacity=10MiB name=ckpt
#BB stage_in source=STORE/in destination=$BB_JOB_STRIPED/in
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/out.%j
printenv | grep '^BB_\|^FOREBAY' | sort
BBCTL cat $BB_JOB_STRIPED/in/a >in && { cat in; echo; echo and more; } >out && BBCTL put out $BB_JOB_ckpt/out/b && srun -N1 hostname
`))
	info := c.Wait(job)
	if info["JobState"] != "COMPLETED" {
		t.Fatalf("%v\n%s", info, c.Output(job))
	}
	c.gone(job)
	if got := c.read("out." + job + "/b"); got != "what was there\nand more\n" {
		t.Errorf("copied out: %q\n%s\n%s", got, c.Output(job), c.verb("status", "--job", job))
	}
	if got := c.verb("status", "--job", job); !strings.Contains(got, "teardown  done") {
		t.Errorf("status: %s", got)
	}
}
