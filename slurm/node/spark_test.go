//go:build spark

package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/internal/slurmtest"
)

// TestSparkDocs runs the job of docs/spark.md, with the paths of the test. It needs FOREBAY_SPARK,
// a SPARK_HOME, and FOREBAY_SPARK_JAR, the jar that users put into its folder jars.
func TestSparkDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/spark.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	program := block(t, string(page), "python")
	folder := s.folder(t, slurmtest.Alice, map[string]string{"job.py": program})
	s.Run(slurmtest.Alice, "mkdir", folder+"/out")

	// A copy that an ordinary user may read, and with the jar in it.
	home := filepath.Join(s.Dir, "spark")
	for _, args := range [][]string{
		{"cp", "-rl", os.Getenv("FOREBAY_SPARK"), home},
		{"cp", os.Getenv("FOREBAY_SPARK_JAR"), home + "/jars/"},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	script := strings.NewReplacer("/opt/spark", home, "/lustre/%u", folder, "GiB", "MiB", "#!/bin/bash\n", "").Replace(block(t, string(page), "sh job"))

	// JVMs that run for seconds.
	script = strings.Replace(script, "export ", "export JDK_JAVA_OPTIONS=-XX:TieredStopAtLevel=1 ", 1)

	job := s.Submit(slurmtest.Alice, script, "--chdir="+folder)
	deadline := time.Now().Add(5 * time.Minute)
	for running := true; running && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		state := s.Job(job)["JobState"]
		running = state == "RUNNING" || state == "PENDING" || state == "CONFIGURING"
	}
	s.completed(t, job)
	s.over(t, job, 1)
	if out := s.Output(job); !strings.Contains(out, "\n100000\n") {
		t.Errorf("the job has not counted its rows:\n%s", out)
	}
	for k := range 10 {
		files, err := filepath.Glob(filepath.Join(folder, "out", "table", "k="+string(rune('0'+k)), "*.parquet"))
		if err != nil || len(files) == 0 {
			t.Errorf("nothing of k=%d is on the store (%v)", k, err)
		}
	}
}

// block returns the first block of a page in a language.
func block(t *testing.T, page, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "```"+language+"\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("there is no block %q", language)
	}
	return text
}
