package mount

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/cli"
	"forebay/internal/mounts"
)

func newMountCommand(a *app.App) *cobra.Command {
	var foreground, coherent, direct bool
	var log string
	cmd := &cobra.Command{
		Use: "mount bb://BUFFER DIR", Short: "Mount a buffer as a file system, for programs that link no library", Args: cobra.ExactArgs(2),
		Long: `Mounts a buffer on a directory: bbmount does so, a program of its own that lies beside bbctl
or in $PATH. Returns when the mount serves, which goes on in the background, also while the
daemon restarts: programs wait meanwhile. docs/mount.md has the guarantees for programs, and
the calls that are refused.

Run by root, all users may enter, with the rights that owners and modes of the files give
them; run by another user, it needs fusermount3, and that user alone may enter.`,
		Example: "  bbctl mount bb://scratch /bb/scratch\n  bbctl umount /bb/scratch",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.UseContext(); err != nil {
				return err
			}
			line := []string{"--log=" + log}
			if foreground {
				line = []string{"--foreground"}
			}
			if coherent {
				line = append(line, "--coherent")
			}
			if direct {
				line = append(line, "--direct-writes")
			}
			return runMount(cmd.Context(), a, foreground, append(line, "--socket="+a.SocketAddress(), "--", args[0], args[1]))
		},
	}
	cmd.Flags().BoolVarP(&foreground, "foreground", "f", false, "stay in the foreground, and log to standard error")
	cmd.Flags().StringVar(&log, "log", "", "file that the mount appends its log to, in the background (default: none)")
	cmd.Flags().BoolVar(&coherent, "coherent", false, "show each write to programs on all nodes when it returns, which costs a commit")
	cmd.Flags().BoolVar(&direct, "direct-writes", false, "take the bytes of programs that only write past the kernel's pages")
	return cmd
}

func newRemountCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remount DIR", Short: "Restart the process of a mount under its programs, for instance after an upgrade", Args: cobra.ExactArgs(1),
		Long: `Has the bbmount that is installed now go on for the process of a mount, and returns when it does.
Programs keep their open files and directories, and wait for a moment. What they have written is
committed before. If the new process cannot go on, the old one does, and the command fails: while
requests wait for a daemon, and while programs read files by passthrough.`,
		Example: "  bbctl remount /bb/scratch",
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := mountedAt(args[0])
			if err != nil {
				return err
			}
			return mounts.Restart(dir)
		},
	}
}

// Run mounts a buffer in the background, and returns when the mount serves.
func Run(ctx context.Context, a *app.App, buffer, dir string) error {
	if err := a.UseContext(); err != nil {
		return err
	}
	return runMount(ctx, a, false, []string{"--socket=" + a.SocketAddress(), "--", client.Address{Buffer: buffer}.String(), dir})
}

// runMount runs bbmount.
func runMount(ctx context.Context, a *app.App, foreground bool, line []string) error {
	program, err := Program()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, program, line...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = &text
	if foreground {
		cmd.Stderr = a.Err
	}
	cmd.Env = os.Environ()
	for name, file := range map[string]string{
		"FOREBAY_KEY_FILE": a.KeyFile, "FOREBAY_TOKEN_FILE": a.Token,
		"FOREBAY_TLS_CA": a.TLS.CA, "FOREBAY_TLS_CERT": a.TLS.Cert, "FOREBAY_TLS_KEY": a.TLS.Key,
	} {
		if file != "" {
			cmd.Env = append(cmd.Env, name+"="+file)
		}
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && foreground {
		return &cli.Failed{Code: max(exit.ExitCode(), cli.ExitError), Line: "mount: bbmount has failed"}
	}
	if errors.As(err, &exit) {
		return &cli.Failed{Code: max(exit.ExitCode(), cli.ExitError), Line: strings.TrimPrefix(strings.TrimSpace(text.String()), "bbmount: ")}
	}
	return err
}

// Program returns the path of bbmount.
func Program() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "bbmount")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("bbmount")
	if err != nil {
		return "", &client.Error{Kind: client.ErrUnsupported, Op: "mount", Err: errors.New("bbmount is missing"), Remedy: "install it beside bbctl, or in $PATH"}
	}
	return path, nil
}

func newUmountCommand(a *app.App) *cobra.Command {
	var lazy bool
	cmd := &cobra.Command{
		Use: "umount DIR", Short: "Unmount a buffer", Args: cobra.ExactArgs(1),
		Long: `Unmounts a buffer, also if the process of the mount was killed. Files that programs have
closed or synced are in the buffer. While programs have files open there it fails, unless
--lazy: then the mount is not seen any more, and ends when they have closed them.`,
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := mountedAt(args[0])
			if err != nil {
				return err
			}
			if lazy {
				return mounts.Detach(dir)
			}
			return mounts.Unmount(dir)
		},
	}
	cmd.Flags().BoolVarP(&lazy, "lazy", "z", false, "also while programs have files open there")
	return cmd
}

// mountedAt returns the resolved path of a mount.
func mountedAt(name string) (string, error) {
	dir, err := mounts.Resolve(name)
	if err != nil {
		return "", err
	}
	_, mounted, err := mounts.At(dir)
	if err == nil && !mounted {
		err = &client.Error{Kind: client.ErrNotFound, Op: "umount", Path: dir, Err: errors.New("not found: no buffer is mounted there"), Remedy: "findmnt -t fuse." + mounts.Subtype + " lists the mounts"}
	}
	return dir, err
}
