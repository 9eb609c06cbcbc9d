package slurm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forebay/slurm/directive"
	"forebay/slurm/directive/directivetest"
)

// forLua runs a test with the oldest and the newest Lua that Slurm may have been built with.
func forLua(t *testing.T, test func(t *testing.T, lua string)) {
	for _, lua := range []string{"lua5.1", "lua5.4"} {
		t.Run(lua, func(t *testing.T) {
			if out, err := exec.Command("../scripts/lua-tools.sh").CombinedOutput(); err != nil {
				if os.Getenv("CI") != "" {
					t.Fatalf("%v: %s", err, out)
				}
				t.Skipf("%s", bytes.TrimSpace(out))
			}
			test(t, lua)
		})
	}
}

// runLua runs a Lua program and returns its output.
func runLua(t *testing.T, lua, program string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.lua")
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd := exec.Command(lua, file)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", lua, err, out, errs.Bytes())
	}
	return string(out)
}

func corpus(t *testing.T) []directivetest.Script {
	t.Helper()
	return directivetest.Corpus(t, "directive/testdata/directives")
}

// problemsOfLua has the Lua parser read scripts.
func problemsOfLua(t *testing.T, lua string, scripts []directivetest.Script) []string {
	t.Helper()
	var p strings.Builder
	p.WriteString(directivesLua)
	p.WriteString("local function show(text, options)\nfor _, p in ipairs((directives.check(text, options))) do\n" +
		"io.write(p.warning and 'warning: ' or 'error: ', directives.describe(p), '\\n')\nend\nio.write('\\1')\nend\n")
	for _, s := range scripts {
		words := s.Options.Prefixes
		if len(words) == 0 {
			words = []string{"BB"}
		}
		pools := "nil"
		if s.Options.Pools != nil {
			pools = luaList(s.Options.Pools)
		}
		var profiles strings.Builder
		for name, text := range s.Options.Profiles {
			fmt.Fprintf(&profiles, "[%s] = %s, ", luaString(name), luaString(text))
		}
		fmt.Fprintf(&p, "show(%s, { words = %s, need_pool = %t, pools = %s, expanded = %t, profiles = { %s } })\n",
			luaString(s.Text), luaList(words), s.Options.NeedPool, pools, s.Options.Expanded, profiles.String())
	}
	out := strings.Split(runLua(t, lua, p.String()), "\x01")
	return out[:len(out)-1]
}

func problemsOfGo(s directivetest.Script) string {
	_, problems := directive.Parse([]byte(s.Text), s.Options)
	var b strings.Builder
	for _, p := range problems {
		kind := "error"
		if p.Warning {
			kind = "warning"
		}
		fmt.Fprintf(&b, "%s: %s\n", kind, p)
	}
	return b.String()
}

// TestLuaReadsAlike shows that slurmctld and setup check the same.
func TestLuaReadsAlike(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		scripts := corpus(t)
		for i, got := range problemsOfLua(t, lua, scripts) {
			if diff := cmp.Diff(problemsOfGo(scripts[i]), got); diff != "" {
				t.Errorf("%q: Go (-), Lua (+):\n%s", scripts[i].Text, diff)
			}
		}
	})
}

// TestLuaReadsAlikeMangled does so with mangled scripts. Of a store's URL, Lua reads only the
// beginning, so these are left out.
func TestLuaReadsAlikeMangled(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		r := rand.New(rand.NewPCG(1, 2))
		good := corpus(t)
		var scripts []directivetest.Script
		for range 3000 {
			s := good[r.IntN(len(good))]
			other := good[r.IntN(len(good))].Text
			text := []byte(s.Text)
			for range 1 + r.IntN(4) {
				if len(text) == 0 {
					break
				}
				at := r.IntN(len(text))
				switch r.IntN(5) {
				case 0:
					text = append(text[:at], text[min(len(text), at+1+r.IntN(3)):]...)
				case 1:
					text[at] = byte(r.IntN(128))
				case 2:
					from := r.IntN(len(other))
					text = append(text[:at:at], append([]byte(other[from:min(len(other), from+r.IntN(20))]), text[at:]...)...)
				case 3:
					text[at] = " =\n$%/{}.\t\\#"[r.IntN(12)]
				case 4:
					text[at] = byte(r.IntN(256))
				}
			}
			s.Text = string(text)
			scripts = append(scripts, s)
		}
		differ := 0
		for i, got := range problemsOfLua(t, lua, scripts) {
			want := problemsOfGo(scripts[i])
			if strings.Contains(want+got, "names no store") || want == got {
				continue
			}
			if differ++; differ < 4 {
				t.Errorf("%q: Go (-), Lua (+):\n%s", scripts[i].Text, cmp.Diff(want, got))
			}
		}
		if differ > 0 {
			t.Errorf("%d of %d differ", differ, len(scripts))
		}
	})
}

func TestLuaAddsPools(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		for in, want := range map[string]string{
			"#!/bin/sh\n#BB jobbb capacity=1G\n#BB jobbb capacity=1G  \nls\n#BB jobbb capacity=1G\n": "#!/bin/sh\n#BB jobbb capacity=1G pool=memory\n#BB jobbb capacity=1G pool=memory\nls\n#BB jobbb capacity=1G\n",
			"#BB jobbb capacity=1G pool=disk\n\n#BB jobbb":                                           "#BB jobbb capacity=1G pool=disk\n\n#BB jobbb",
			"#BB jobbb capacity=1G": "#BB jobbb capacity=1G pool=memory",
			"":                      "",
		} {
			got := runLua(t, lua, directivesLua+"io.write(directives.with_pool("+luaString(in)+", 'BB', 'memory'))")
			if got != want {
				t.Errorf("%q: %q, not %q", in, got, want)
			}
		}
	})
}

// hooksLua is burst_buffer.lua with a bbctl that the test has written, and Slurm's own environment
// for it.
func hooksLua(t *testing.T, bbctl string, change func(*Settings)) (program, folder string) {
	t.Helper()
	folder = t.TempDir()
	fake := filepath.Join(folder, "it's bbctl")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\n"+bbctl), 0o755); err != nil {
		t.Fatal(err)
	}
	s := testSettings(folder)
	s.Bbctl = []string{fake, "--socket", "tcp://h:1"}
	if change != nil {
		change(s)
	}
	return "slurm = { SUCCESS = 0, ERROR = -1 }\n" + s.Files()[BurstBufferFile] +
		"\nlocal function show(...) local t = {...}\nfor i = 1, select('#', ...) do t[i] = tostring(t[i]) end\nprint(table.concat(t, '|')) end\n", folder
}

func testSettings(folder string) *Settings {
	return &Settings{
		Folder: folder, Cluster: "test", Prefixes: []string{"BB"}, Pools: []string{"memory"}, Default: "memory",
		Bbctl: []string{"bbctl"}, Granule: 64 << 20,
	}
}

// TestLuaHooks shows the commands of each hook, and its result for each outcome.
func TestLuaHooks(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		const echo = `shift 2; echo "$@" >>"$(dirname "$0")/ran"; echo '{"state":"done","message":"12"}'`
		program, folder := hooksLua(t, echo, nil)
		if err := os.WriteFile(filepath.Join(folder, "7.env"), []byte("A=b\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "pools.json"), []byte(`{"pools":[]}`), 0o644); err != nil {
			t.Fatal(err)
		}
		out := runLua(t, lua, program+`
show(slurm_bb_setup("7", "1000", "100", "memory", "5", "/state/it's; rm"))
show(slurm_bb_setup("7", "1000", "100", "(null)", "0", "/proc/12/fd/3"))
show(slurm_bb_data_in("7", "x", "1", "2"))
show(slurm_bb_real_size("7"))
show(slurm_bb_pre_run("7", "x"))
show(slurm_bb_post_run("7", "x"))
show(slurm_bb_data_out("7", "x"))
show(slurm_bb_job_teardown("7", "x", "true"))
show(slurm_bb_job_teardown("7", "x", "false"))
show(slurm_bb_get_status("7", "more"))
show(slurm_bb_get_status())
show(slurm_bb_pre_run("7; rm", "x"))
show(slurm_bb_pools())
show(slurm_bb_paths("7", "x", "`+folder+`/path"))
show(slurm_bb_paths("8", "x", "`+folder+`/path8"))
`)
		want := `0
0
0
0|12
0
0
0
0
0
0|12
-1|say for which job: scontrol show bbstat JOB
-1|forebay: job id 7; rm is no number
0|{"pools":[]}
0
0
`
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("wanted (-), got (+):\n%s", diff)
		}
		ran, _ := os.ReadFile(filepath.Join(folder, "ran"))
		f := " --folder " + folder + " --json"
		want = "slurm setup" + f + " --job 7 --uid 1000 --gid 100 --bytes 5 --script /state/it's; rm --pool memory\nslurm pools" + f +
			"\nslurm setup" + f + " --job 7 --uid 1000 --gid 100 --bytes 0 --script /proc/12/fd/3 --expanded\nslurm pools" + f +
			"\nslurm data-in" + f + " --job 7\nslurm real-size" + f + " --job 7\nslurm pre-run" + f + " --job 7\nslurm post-run" + f +
			" --job 7\nslurm data-out" + f + " --job 7 --wait 0s\nslurm teardown" + f + " --job 7 --hurry\nslurm pools" + f +
			"\nslurm teardown" + f + " --job 7\nslurm pools" + f + "\nslurm status" + f + " --job 7\n"
		if diff := cmp.Diff(want, string(ran)); diff != "" {
			t.Errorf("wanted (-), got (+):\n%s", diff)
		}
		for name, text := range map[string]string{"path": "A=b\n", "path8": ""} {
			if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(got) != text {
				t.Errorf("%s: %q %v", name, got, err)
			}
		}
	})
}

// TestLuaHookFails shows that no failure counts as success: an error, an end by a signal, of bbctl
// or of the shell around it, and words that only look well.
func TestLuaHookFails(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		for name, c := range map[string]struct{ bbctl, want string }{
			"failed":       {`printf '%s\n' '{"state":"failed","message":"no such \"file\"\u003e \\ ü"}'; exit 1`, "-1|forebay: no such \"file\"> \\ ü\n"},
			"status alone": {`echo '{"state":"done"}'; exit 1`, "-1|forebay: bbctl slurm pre-run ended with status 1\n"},
			"says nothing": {`exit 0`, "-1|forebay: bbctl slurm pre-run ended with status 0\n"},
			"TERM":         {`kill -TERM $$`, "-1|forebay: bbctl slurm pre-run ended with status 143\n"},
			"shell too":    {`echo '{"state":"done"}'; kill -TERM $PPID; kill -TERM $$`, "-1|forebay: slurm pre-run was ended before it had finished\n"},
			"hidden":       {`printf '%s\n' '{"state":"failed","message":"\"state\":\"done\" exit 0"}'; exit 3`, "-1|forebay: \"state\":\"done\" exit 0\n"},
		} {
			program, _ := hooksLua(t, c.bbctl, nil)
			if out := runLua(t, lua, program+`show(slurm_bb_pre_run("7", "x"))`); out != c.want {
				t.Errorf("%s: %q", name, out)
			}
		}
		program, _ := hooksLua(t, "", func(s *Settings) { s.Bbctl[0] = "/nowhere/bbctl" })
		if out := runLua(t, lua, program+`show(slurm_bb_pre_run("7", "x"))`); out != "-1|forebay: there is no /nowhere/bbctl\n" {
			t.Errorf("without bbctl: %q", out)
		}
		if out := runLua(t, lua, program+`show(slurm_bb_pools())`); !strings.HasPrefix(out, "-1|forebay: no pools are known") {
			t.Errorf("without pools: %q", out)
		}
	})
}

// TestLuaDataOutKeepsOn shows that data-out ends with success alone, unless there is
// nothing to save.
func TestLuaDataOutKeepsOn(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		const second = `n=$(dirname "$0")/n; echo >>$n; [ $(wc -l <$n) -gt 1 ] && { echo '{"state":"done","message":""}'; exit 0; }; kill -KILL $$`
		program, _ := hooksLua(t, second, nil)
		if out := runLua(t, lua, program+`show(slurm_bb_data_out("7", "x"))`); out != "0\n" {
			t.Errorf("%q", out)
		}
		program, _ = hooksLua(t, `echo '{"state":"failed","message":"nothing is known of it: x"}'; exit 1`, nil)
		if out := runLua(t, lua, program+`show(slurm_bb_data_out("7", "x"))`); !strings.HasPrefix(out, "-1|") {
			t.Errorf("%q", out)
		}
	})
}

// TestLuaPolls shows the hooks of Slurm 24.05, which polls the progress of a stage.
func TestLuaPolls(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		const twice = `n=$(dirname "$0")/n; echo "$@" >>$n; [ $(wc -l <$n) -gt 2 ] && s=done || s=busy; echo "{\"state\":\"$s\",\"message\":\"\"}"`
		for _, way := range []string{"in", "out"} {
			program, _ := hooksLua(t, twice, func(s *Settings) { s.Poll = true })
			out := runLua(t, lua, program+strings.ReplaceAll(`show(slurm_bb_data_@("7", "x", "1", "2"))
show(slurm_bb_test_data_@("7", "x", "1", "2"))
show(slurm_bb_test_data_@("7", "x", "1", "2"))
`, "@", way))
			if out != "0\n0|BUSY\n0\n" {
				t.Errorf("%s: %q", way, out)
			}
		}
		program, _ := hooksLua(t, `echo "{\"state\":\"done\",\"message\":\"$8 $9\"}"`, func(s *Settings) { s.Poll = true })
		if out := runLua(t, lua, program+`show(slurm_bb_get_status("1000", "100", "7"))`); out != "0|--job 7\n" {
			t.Errorf("status of a job, asked by a user: %q", out)
		}
	})
}

// TestLuaRefuses shows the reasons of job_process, and those of job_submit, which come to
// the user whole.
func TestLuaRefuses(t *testing.T) {
	forLua(t, func(t *testing.T, lua string) {
		program, folder := hooksLua(t, "exit 1", nil)
		job := filepath.Join(folder, "job")
		if err := os.WriteFile(job, []byte("#!/bin/sh\n#BB jobbb capacity=1.5G\n#BB stage_in source=%z destination=$BB_JOB_STRIPED\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out := runLua(t, lua, program+"show(slurm_bb_job_process("+luaString(job)+"))\nshow(slurm_bb_job_process('/nowhere'))\n")
		if !strings.HasPrefix(out, "-1|forebay: line 2, column 11: capacity without a pool") || !strings.Contains(out, "\nforebay: line 3, column") ||
			!strings.HasSuffix(out, "\n-1|forebay: the job's script cannot be read\n") {
			t.Errorf("%s", out)
		}
		submit := "slurm = { SUCCESS = 0, ERROR = -1, log_user = function(...) print('user: ' .. string.format(...)) end }\n" +
			testSettings(folder).Files()[SubmitFile]
		out = runLua(t, lua, submit+`
local desc = { script = "#!/bin/sh\n#BB jobbb capacity=1G access=private\n" }
print(slurm_job_submit(desc, nil, 1), desc.script)
print(slurm_job_submit({ burst_buffer = "#BB stage_in source=/%z destination=/x" }, nil, 1))
print(slurm_job_submit({ script = "#!/bin/sh\n" }, nil, 1))
print(slurm_job_modify())
`)
		want := `user: forebay: note: line 2, column 23: private is ignored: all nodes of the job see all files of a buffer
0	#!/bin/sh
#BB jobbb capacity=1G access=private pool=memory

user: forebay: line 1, column 22: a per cent sign before something that Slurm does not replace (write %j job, %A array job, %a array task, %u user, %x job's name, %d folder, or %% for the sign)
user: forebay: line 1, column 37: destination of stage_in must be in a buffer (begin it with $BB_JOB_STRIPED/ or $BB_PERSISTENT_STRIPED_name/)
-1
0
0
`
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("wanted (-), got (+):\n%s", diff)
		}
	})
}
