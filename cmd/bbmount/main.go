// Command bbmount mounts a Forebay buffer as a file system, for programs that link no library. It
// is a process of its own, which outlives the daemon's restarts. It must never depend on a daemon's
// storage.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbmount/fstab"
	"forebay/internal/cli"
	"forebay/internal/mounts"
)

// version is set when a release is built (see the Makefile).
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bbmount:", err)
		os.Exit(cli.CodeOf(err))
	}
}

// run runs the command. As the helper of mount(8) it has another command line.
func run(ctx context.Context) error {
	if filepath.Base(os.Args[0]) == fstab.Helper {
		line, err := fstab.Parse(os.Args[1:])
		if err != nil || line.Fake {
			return err
		}
		os.Args = append(os.Args[:1], line.Args...)
	}
	return newCommand().ExecuteContext(ctx)
}

func newCommand() *cobra.Command {
	o := options{passes: passOff}
	var foreground bool
	var logFile string
	cmd := &cobra.Command{
		Use:   "bbmount bb://BUFFER DIR",
		Short: "Mount a buffer as a file system",
		Long: `bbmount shows a buffer below a directory, as a file system. Programs that were never
written for Forebay read and write files there; close and fsync return when what was
written survives the death of the program, of the mount and of the daemon. While the daemon
restarts, programs wait.

It returns when the mount serves, and goes on in the background. bbctl umount
DIR, or SIGTERM, ends it. bbctl remount DIR, or SIGHUP, has the bbmount that is installed then go on
for it, under the programs that use the mount. Run by root, all users may enter, with the rights that owners and modes of
the files give them; run by somebody else, that user alone.`,
		Example:       "  bbmount bb://scratch /bb/scratch\n  bbmount --foreground bb://scratch /bb/scratch",
		Args:          cobra.ExactArgs(2),
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := client.ParseAddress(args[0])
			if err != nil {
				return err
			}
			if at.Path != "" {
				return usage(args[0] + ": a whole buffer is mounted: bb://" + at.Buffer)
			}
			if o.shared && o.passes == passRead {
				return usage("--coherent shows each write at once, --passthrough=read a file as it was: leave one out")
			}
			o.buffer = at.Buffer
			if o.dir, err = mounts.Resolve(args[1]); err != nil {
				return err
			}
			if !foreground {
				return background(cmd.Context(), logFile)
			}
			return runForeground(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&foreground, "foreground", "f", false, "stay in the foreground, and log to standard error")
	flags.StringVar(&logFile, "log", "", "file that the mount appends its log to, in the background (default: none)")
	flags.StringVar(&o.client.Address, "socket", "", "the daemon's address: unix:///path (default: the one of this node)")
	flags.DurationVar(&o.retry, "retry", 0, "how long a program waits for a daemon that does not answer, until it gets EIO (default: until it answers)")
	flags.BoolVar(&o.others, "allow-other", os.Geteuid() == 0, "let other users enter")
	flags.BoolVar(&o.shared, "coherent", false, "show each write to programs on all nodes when it returns, which costs a commit")
	flags.BoolVar(&o.direct, "direct-writes", false, "take the bytes of programs that only write past the kernel's pages")
	flags.Var(&o.passes, "passthrough", "read: have the kernel read large files from the daemon's memory (Linux 6.9, as root), off: do not")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err.Error()) })
	cli.RefuseUnknown(cmd, usage)
	return cmd
}

func runForeground(ctx context.Context, o options) error {
	o.log = newLog(os.Stderr)
	o.client.Name, o.client.Logger = "bbmount "+version, o.log
	from, err := earlier()
	if err != nil {
		return err
	}
	tell, err := parent()
	if err != nil {
		return err
	}
	o.ready = func() {
		tell("")
		if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
			o.log.Warn("notifying systemd", "err", err)
		}
	}
	err = serve(ctx, o, from)
	if err != nil {
		tell(err.Error())
	}
	return err
}
