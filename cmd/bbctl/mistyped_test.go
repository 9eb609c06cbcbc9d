package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"forebay/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"forebay/cmd/bbctl/app"
)

// TestMistypedLines mistypes every command, every flag and the number of arguments of each command.
// Each line is refused before any request to a daemon, with exit code 2, and the text names the
// error and the nearest correct word.
func TestMistypedLines(t *testing.T) {
	t.Parallel()
	root := newCommand(&app.App{Err: io.Discard, Out: io.Discard})
	lines, socket := 0, filepath.Join(t.TempDir(), "none")
	try := func(want string, args ...string) {
		lines++
		var out strings.Builder
		a := &app.App{In: strings.NewReader(""), Out: &out, Err: io.Discard}
		defer a.Close()
		cmd := newCommand(a)
		cmd.SetOut(&out)
		cmd.SetArgs(append(args, "--socket", socket, "--timeout", "1ms"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := cmd.ExecuteContext(ctx)
		switch {
		case err == nil || app.ExitCode(err) != cli.ExitUsage:
			t.Errorf("bbctl %s: %v, want exit code %d", strings.Join(args, " "), err, cli.ExitUsage)
		case !strings.Contains(err.Error(), want):
			t.Errorf("bbctl %s: %v, want %q in it", strings.Join(args, " "), err, want)
		case out.Len() > 0:
			t.Errorf("bbctl %s prints %q", strings.Join(args, " "), out.String())
		}
	}
	each(root, func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		if name := cmd.Name(); len(path) > 0 && len(name) > 3 {
			above := path[:len(path)-1]
			for _, wrong := range []string{name[:len(name)-1] + "x", name[:1] + name[2:3] + name[1:2] + name[3:]} {
				if wrong != name && !takesArguments(cmd.Parent()) {
					try("did you mean", append(append([]string{}, above...), wrong)...)
				}
			}
		}
		if !cmd.Runnable() {
			return
		}
		try("unknown flag: --frobnicate", append(append([]string{}, path...), "--frobnicate")...)
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if len(f.Name) > 3 {
				try("did you mean --"+f.Name, append(append([]string{}, path...), "--"+f.Name[:len(f.Name)-1])...)
			}
		})
		for n := range 5 {
			args := make([]string, n)
			for i := range args {
				args[i] = "bb://b/x"
			}
			if cmd.Args != nil && cmd.Args(cmd, args) != nil {
				want := "usage is: bbctl " + strings.Join(path, " ")
				if cmd.HasSubCommands() && n > 0 {
					want = "has no command"
				}
				try(want, append(append([]string{}, path...), args...)...)
			}
		}
	})
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		try("did you mean --"+f.Name, "ls", "--"+f.Name[:len(f.Name)-1])
	})
	t.Logf("%d lines", lines)
	if lines < 300 {
		t.Errorf("only %d lines were tried", lines)
	}
}

// each calls fn for a command and all below it.
func each(cmd *cobra.Command, fn func(*cobra.Command)) {
	fn(cmd)
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			each(c, fn)
		}
	}
}

// takesArguments reports whether a command with others below it also takes arguments of its own.
func takesArguments(cmd *cobra.Command) bool {
	return cmd != nil && cmd.Runnable() && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) == nil
}
