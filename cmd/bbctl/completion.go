package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/files"
	"forebay/internal/bb"
)

// Completions come from the daemon while the user waits for the key. An absent or slow daemon
// completes nothing, without a message.
const (
	completeTime = 3 * time.Second
	completeMost = 1000 // names
)

// flagValues are the values that flags have, by the flag's name, where there are few.
var flagValues = map[string][]string{
	"progress": app.ProgressModes, "state": files.StateNames(), "type": {"f", "d"},
	"codec": {"zstd", "s2"}, "durability": {"resident", "flushed"}, "existing": {"refuse", "keep", "overwrite"},
}

// bashNeeds stands before the script of bash, which calls functions of the package bash-completion.
// Without them each press of the tab key would print an error.
const bashNeeds = `if ! declare -F _get_comp_words_by_ref >/dev/null; then
    echo "bbctl: completion needs the package bash-completion: install it, and open a new shell" >&2
    return 1 2>/dev/null || exit 1
fi
`

// warnOfBash puts bashNeeds before the output of "completion bash".
func warnOfBash(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion", "bash"})
	if err != nil {
		return
	}
	script := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := fmt.Fprint(root.OutOrStdout(), bashNeeds); err != nil {
			return err
		}
		return script(cmd, args)
	}
}

// complete makes a command and those below it complete the arguments of their usage lines.
func complete(a *app.App, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		complete(a, c)
	}
	for flag, values := range flagValues {
		if cmd.LocalNonPersistentFlags().Lookup(flag) != nil || !cmd.HasParent() && cmd.PersistentFlags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if !cmd.HasParent() {
		_ = cmd.RegisterFlagCompletionFunc("context", completeContext)
	}
	if cmd.RunE != nil && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = completions(a, cmd)
	}
}

// completions returns the completion of the arguments of a command. nil means files, as shells complete them.
func completions(a *app.App, cmd *cobra.Command) cobra.CompletionFunc {
	_, takes, _ := strings.Cut(cmd.Use, " ")
	switch {
	case takes == "":
		return cobra.NoFileCompletions
	case strings.Contains(takes, "bb://"):
		names := strings.HasPrefix(takes, "BUFFER |")
		files := strings.Contains(takes, "FILE") || strings.Contains(takes, "TARGET") || strings.Contains(takes, "URL")
		return asking(a, func(ctx context.Context, c *client.Client, word string) ([]string, cobra.ShellCompDirective) {
			if names && !strings.HasPrefix(word, bb.Scheme+":") {
				return bufferNames(ctx, c), cobra.ShellCompDirectiveNoFileComp
			}
			return completePath(ctx, c, word, files)
		})
	case strings.Contains(takes, "BUFFER"), takes == "NAME" && cmd.Parent().Name() == "buffer" && cmd.Name() != "create":
		return asking(a, func(ctx context.Context, c *client.Client, _ string) ([]string, cobra.ShellCompDirective) {
			return bufferNames(ctx, c), cobra.ShellCompDirectiveNoFileComp
		})
	case strings.Contains(takes, "NODE"):
		return asking(a, func(ctx context.Context, c *client.Client, _ string) ([]string, cobra.ShellCompDirective) {
			return nodeNames(ctx, c), cobra.ShellCompDirectiveNoFileComp
		})
	case strings.Contains(takes, "CONTEXT"):
		return completeContext
	case takes == "ID":
		return asking(a, func(ctx context.Context, c *client.Client, _ string) ([]string, cobra.ShellCompDirective) {
			return jobIDs(ctx, c), cobra.ShellCompDirectiveNoFileComp
		})
	}
	return nil
}

// asking is a completion from a daemon's answer, and drops answers that do not begin with the word.
func asking(a *app.App, ask func(context.Context, *client.Client, string) ([]string, cobra.ShellCompDirective)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		a.AtOnce = true
		c, err := a.Dial(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		names, directive := ask(ctx, c, word)
		return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, word) }), directive
	}
}

// completePath completes bb://BUFFER/path. A word that does not begin like that is a file, where files
// are allowed.
func completePath(ctx context.Context, c *client.Client, word string, files bool) ([]string, cobra.ShellCompDirective) {
	const scheme = bb.Scheme + "://"
	const on = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	rest, ok := strings.CutPrefix(word, scheme)
	buffer, below, inside := strings.Cut(rest, "/")
	switch {
	case strings.HasPrefix(word, "/") || strings.HasPrefix(word, "."): // maybe below a mount
		return nil, cobra.ShellCompDirectiveDefault
	case !ok && (!strings.HasPrefix(scheme, word) || word == "" && files):
		if files {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	case !inside:
		names := bufferNames(ctx, c)
		for i := range names {
			names[i] = scheme + names[i] + "/"
		}
		return names, on
	}
	dir := path.Dir(below)
	if dir == "." {
		dir = ""
	}
	entries, _, err := c.Buffer(buffer).List(ctx, dir, "", completeMost)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	directive := cobra.ShellCompDirectiveNoFileComp
	for _, e := range entries {
		name := client.Address{Buffer: buffer, Path: e.Path}.String()
		if e.IsDir() && strings.HasPrefix(name, word) {
			name, directive = name+"/", on
		}
		names = append(names, name)
	}
	return names, directive
}

func completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return app.ContextNames(), cobra.ShellCompDirectiveNoFileComp
}

func bufferNames(ctx context.Context, c *client.Client) (names []string) {
	all, _ := admin.Buffers(ctx, c)
	for _, b := range all {
		names = append(names, b.Name)
	}
	return names
}

func nodeNames(ctx context.Context, c *client.Client) (names []string) {
	all, _ := admin.Nodes(ctx, c)
	for _, n := range all {
		names = append(names, string(n.Name))
	}
	return names
}

func jobIDs(ctx context.Context, c *client.Client) (ids []string) {
	all, _ := admin.Operations(ctx, c)
	for _, j := range all {
		ids = append(ids, j.ID)
	}
	return ids
}
