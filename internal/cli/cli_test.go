package cli_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"forebay/internal/cli"
)

func TestRefuseUnknown(t *testing.T) {
	done := false
	newRoot := func() *cobra.Command {
		root := &cobra.Command{Use: "root", SilenceUsage: true, SilenceErrors: true}
		group := &cobra.Command{Use: "node", Args: cobra.NoArgs}
		both := &cobra.Command{Use: "jobs", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { done = true; return nil }}
		root.AddCommand(&cobra.Command{Use: "cat FILE", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { done = true; return nil }})
		for _, c := range []*cobra.Command{group, both} {
			c.AddCommand(&cobra.Command{Use: "drain", RunE: func(*cobra.Command, []string) error { done = true; return nil }})
			root.AddCommand(c)
		}
		root.SetOut(io.Discard)
		cli.RefuseUnknown(root, func(why string) error { return errors.New(why) })
		return root
	}
	for line, want := range map[string]struct {
		done bool
		err  string
	}{
		"node drain":   {done: true},
		"node":         {},
		"node drian":   {err: `root node has no command "drian"; did you mean drain?`},
		"node zzzzzz":  {err: `root node has no command "zzzzzz"`},
		"jobs":         {done: true},
		"jobs drain":   {done: true},
		"jobs drian":   {err: `root jobs has no command "drian"; did you mean drain?`},
		"nod":          {err: `root has no command "nod"; did you mean node?`},
		"help cat":     {},
		"help node":    {},
		"help cta":     {err: `root has no command "cta"; did you mean cat? The usage is: root help [command] [flags]`},
		"help cat x":   {err: `root cat has no command "x". The usage is: root help [command] [flags]`},
		"completion":   {},
		"completion x": {err: `root completion has no command "x"`},
		"cat":          {err: `there is no argument, but the usage is: root cat FILE [flags]`},
		"cat a b":      {err: `there are 2 arguments, but the usage is: root cat FILE [flags]`},
		"cat a":        {done: true},
	} {
		done = false
		root := newRoot()
		root.SetArgs(strings.Fields(line))
		err := root.Execute()
		if got := errText(err); got != want.err || done != want.done {
			t.Errorf("%s: done %t, %q; want %t, %q", line, done, got, want.done, want.err)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
