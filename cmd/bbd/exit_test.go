package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"forebay/internal/bbdtest"
	"forebay/internal/cli"
)

// TestExitCodes: bbd's exit codes are those of bbctl.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	d := bbdtest.Start(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, c := range []struct {
		code int
		args []string
	}{
		{cli.ExitUsage, []string{"purge", "--dir", d.Dir}},
		{cli.ExitConflict, []string{"purge", "--discard", "--dir", d.Dir}},
		{cli.ExitNotFound, []string{"purge", "--discard", "--dir", nowhere}},
		{cli.ExitNotFound, []string{"config", "check", "--config", nowhere}},
		{cli.ExitUsage, []string{"config", "chek"}},
		{cli.ExitUsage, []string{"help", "chek"}},
		{cli.ExitUsage, []string{"completion", "csh"}},
		{cli.ExitDone, []string{"help", "purge"}},
	} {
		out, err := exec.Command(bbdtest.Binary(t), c.args...).CombinedOutput()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code {
			t.Errorf("bbd %q exits with %d, want %d: %s", c.args, code, c.code, out)
		}
	}
}
