package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

func newTokenCommand(a *app.App) *cobra.Command {
	var (
		lifetime time.Duration
		file     string
	)
	cmd := &cobra.Command{
		Use: "token BUFFER", Short: "Make a token that lets a client over TCP into one buffer, for a time", Args: cobra.ExactArgs(1),
		Long: `Makes a token for a client that comes over TCP and has neither the cluster key nor a
certificate. It acts as the buffer's owner on the files of this buffer, and can do
nothing else. The buffer's owner and the system may make one, at any daemon that has the
cluster key. A token cannot be taken back before it expires, but by changing that key:
treat it like a key.`,
		Example: "  bbctl token results --lifetime 8h -o ~/results.token\n  bbctl --socket tcp://node1:7481 --token-file ~/results.token ls bb://results/",
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			text, expires, err := admin.Token(ctx, c, args[0], lifetime)
			if err != nil {
				return err
			}
			if file != "" {
				return bb.Wrap("token", file, writeSecret(file, secretFile{"token", []byte(text + "\n"), 0o600}))
			}
			made := struct {
				Token   string    `json:"token"`
				Expires time.Time `json:"expires"`
			}{text, expires}
			return a.Print(made, func() { fmt.Fprintln(a.Out, text) })
		}),
	}
	cmd.Flags().DurationVar(&lifetime, "lifetime", 24*time.Hour, "how long it can be used: at most 720h")
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write it to, readable by its owner only (default: standard output)")
	return cmd
}
