package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

var update = flag.Bool("update", false, "write docs/bbctl.md")

const pagePath = "../../docs/bbctl.md"

// TestPage fails unless docs/bbctl.md equals the commands' own help.
func TestPage(t *testing.T) {
	want := page(newCommand(&app.App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
	if *update {
		if err := os.WriteFile(pagePath, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(pagePath)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not current (%v): make generate", pagePath, err)
	}
}

// page renders the reference of a command and all below it.
func page(root *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# bbctl\n\nMade from the commands themselves by `make generate`.\n\n%s\n\n## Flags of all commands\n\n```\n%s```\n", root.Long, root.PersistentFlags().FlagUsages())
	var render func(*cobra.Command)
	render = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		if cmd != root && cmd.Runnable() {
			renderCommand(&b, cmd)
		}
		for _, sub := range cmd.Commands() {
			render(sub)
		}
	}
	render(root)
	b.WriteString("\n## bbctl completion SHELL\n\nPrints a completion script for bash, zsh, fish or powershell.\n")
	return b.Bytes()
}

func renderCommand(b *bytes.Buffer, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", cmd.UseLine(), cmd.Short)
	if cmd.Long != "" && !strings.Contains(cmd.Long, app.ExitCodesHelp) {
		fmt.Fprintf(b, "\n%s\n", cmd.Long)
	}
	if flags := cmd.LocalNonPersistentFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "\n```\n%s```\n", flags)
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", cmd.Example)
	}
}
