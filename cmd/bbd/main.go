// Command bbd is the Forebay daemon of one node. It reads the configuration and joins the packages. It must never
// decide the fate of a file.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"forebay/cmd/bbd/config"
	"forebay/flusher/backing/asuser/protocol"
	"forebay/flusher/backing/asuser/serve"
	"forebay/internal/bb"
	"forebay/internal/cli"
)

// version is set when a release is built (see the Makefile).
var version = "devel"

// ballast is how many bytes of the heap are allocated and never touched, so that they occupy no memory. The
// garbage collector starts once the heap has doubled: without them, a daemon with few files collects
// every few MiB, and spends a tenth of its processor time on that. It costs up to as much garbage.
const ballast = 16 << 20

func main() {
	if len(os.Args) > 1 && os.Args[1] == protocol.Command {
		os.Exit(serve.Main(os.Args[2:])) // started by a daemon, and no command for people
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bbd:", err)
		os.Exit(cli.CodeOf(err)) // as of bbctl: see its help
	}
}

func newCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "bbd",
		Short: "The Forebay daemon: takes bursts into memory, serves and drains them",
		Long: `bbd is the Forebay burst buffer's daemon of one node.

On a laptop, without configuration, root or another server:

    bbd --dev

keeps its state in one folder, listens on loopback only, and bbctl finds it.
Otherwise it reads /etc/forebay/bbd.yaml (bbd config defaults prints one), then
FOREBAY_* of the environment, then flags. SIGTERM stops it in order; what is in
memory stays there for the next start. The exit codes are those of bbctl.`,
		Args:          cobra.NoArgs,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer runtime.KeepAlive(make([]byte, ballast))
			return run(cmd.Context(), cmd.Flags(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.dev, "dev", false, "run without configuration, for one user on this machine")
	flags.StringVar(&o.dir, "dir", "", "with --dev: folder for all state (default "+defaultDevDir()+")")
	flags.StringVar(&o.memory, "memory", "", "short for --memory-size")
	flags.StringVar(&o.file, "config", "", "YAML file (default "+config.DefaultFile+" if it is there)")
	config.AddFlags(flags)
	cmd.AddCommand(config.NewConfigCommand(), newFabricCommand(), newMountCommand(), newPurgeCommand(), newBenchPutCommand())
	cli.FlagErrors(cmd, usage)
	cli.RefuseUnknown(cmd, usage)
	return cmd
}

// usage makes an error of a fault in the command line.
func usage(why string) error {
	return bb.E(bb.Invalid, "command line", "", why).WithRemedy("see bbd --help")
}
