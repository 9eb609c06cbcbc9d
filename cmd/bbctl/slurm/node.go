package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/mount"
	"forebay/internal/bb"
	"forebay/slurm/node"
)

// nodeApp is the common part of the hooks on nodes.
type nodeApp struct {
	*app.App
	c         node.Config
	directive string
}

// newSlurmNodeCommands are the verbs of Slurm's prolog and epilog.
func newSlurmNodeCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{newPrologCommand(a), newEpilogCommand(a), newDeliverCommand(a), newTaskPrologCommand(a), newTaskEpilogCommand(a), newSweepCommand(a), newWatchCommand(a), newEmptyCommand(a), newSlurmInstallCommand(a)}
}

func newNodeApp(a *app.App) *nodeApp {
	n := &nodeApp{App: a, c: node.DefaultConfig()}
	n.c.Mount = func(ctx context.Context, buffer, dir string) error { return mount.Run(ctx, a, buffer, dir) }
	n.c.Log = func(format string, args ...any) { fmt.Fprintf(a.Err, "bbctl slurm: "+format+"\n", args...) }
	return n
}

// flags are those that a site sets for all of its hooks.
func (n *nodeApp) flags(f *pflag.FlagSet) {
	f.StringVar(&n.c.Dir, "dir", n.c.Dir, "folder of the prologs' notes for tasks and epilogs; root's")
	f.StringVar(&n.c.Socket, "job-socket", "", "FOREBAY_SOCKET of jobs (default: the daemon's that the prolog finds)")
	f.StringVar(&n.c.Feature, "feature", n.c.Feature, `feature of nodes whose --constraint gives a job a buffer; "": none`)
	f.StringVar(&n.c.Default, "default", n.c.Default, "options of that buffer, as in #BB jobbb")
	f.BoolVar(&n.c.FeatureRequired, "hinted", false, "query slurmctld only for jobs with that feature, which job_submit.lua may add")
	f.StringVar(&n.directive, "directive", "BB", "lines that begin with # and this are directives: BB, DW or BB,DW")
	f.StringVar(&n.c.Mounts, "mount", "", `folder, root's, below which each job's buffer is mounted; "": none is`)
	f.DurationVar(&n.c.StartTimeout, "ready", n.c.StartTimeout, "how long the daemon may take until it serves")
	f.DurationVar(&n.c.Epilog, "epilog-limit", n.c.Epilog, "how long an epilog may take")
}

func (n *nodeApp) config() (*node.Config, error) {
	n.c.Prefixes = strings.Split(n.directive, ",")
	for _, w := range n.c.Prefixes {
		if w != "BB" && w != "DW" {
			return nil, app.Usage("--directive " + n.directive + " is not BB, DW or BB,DW")
		}
	}
	if n.c.Mounts != "" && !filepath.IsAbs(n.c.Mounts) {
		return nil, app.Usage("--mount must be an absolute path")
	}
	if !filepath.IsAbs(n.c.Dir) || n.c.StartTimeout <= 0 || n.c.Epilog <= 0 {
		return nil, app.Usage("--dir must be an absolute path, --ready and --epilog-limit longer than nothing")
	}
	return &n.c, nil
}

func newPrologCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	cmd := &cobra.Command{
		Use: "prolog", Short: "Open the buffer that a job requests, and stage in (Slurm's Prolog)", Args: cobra.NoArgs,
		Long: `Runs as root on each node of a job, with the environment that Slurm gives a Prolog. Makes
sure that the node's daemon is ready, opens the job's buffers, waits for its stage-ins,
and leaves the job's variables and token where only its user can read them.

It fails, so that Slurm takes the node out of service, only for faults that an administrator
has to mend. A job whose directives are wrong, or whose stage-in fails, is held (or cancelled,
if it is interactive), with the reason in its AdminComment.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := n.config()
			if err != nil {
				return err
			}
			env, err := node.ReadEnv(os.Getenv)
			if err != nil {
				return err
			}
			return node.Prolog(cmd.Context(), c, &env, a.Connect)
		},
	}
	n.flags(cmd.Flags())
	return cmd
}

func newEpilogCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	cmd := &cobra.Command{
		Use: "epilog", Short: "Report the end of a job on the node (Slurm's Epilog)", Args: cobra.NoArgs,
		Long: `Runs as root on each node of a job, with the environment that Slurm gives an Epilog. Reports
to the daemon that the job has left and removes its token. It waits for no data: when
the job has left all its nodes, dirty files are drained, and outputs are copied out. If the
daemon does not answer within --epilog-limit, a process in the background repeats the
report. It always succeeds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := n.config()
			if err != nil {
				n.c.Log("%v", err)
				return nil
			}
			env, err := node.ReadEnv(os.Getenv)
			if err != nil {
				c.Log("%v", err)
				return nil
			}
			if node.Epilog(cmd.Context(), c, &env, a.Connect) {
				if err := n.deliverLater(); err != nil {
					c.Log("%v", err)
				}
			}
			return nil
		},
	}
	n.flags(cmd.Flags())
	return cmd
}

// deliverLater starts the process that notifies the daemon later. It has a session of its own, and holds
// nothing of Slurm's, since slurmd does not wait for it.
func (n *nodeApp) deliverLater() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"slurm", "deliver", "--dir", n.c.Dir}
	if n.Address != "" {
		args = append(args, "--socket", n.Address)
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// deliverTime bounds the wait for a daemon that is away. The next prolog notifies it too.
const deliverTime = 24 * time.Hour

func newDeliverCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	cmd := &cobra.Command{
		Use: "deliver", Short: "Report jobs that ended while the daemon did not answer", Args: cobra.NoArgs,
		Long: "Continues until the daemon has all reports. Epilogs start it. By hand it does no harm.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			// One at a time is enough, since it finds new ones itself.
			lock, err := os.OpenFile(filepath.Join(n.c.Dir, ".deliver"), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			defer lock.Close()
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
				return nil // another one is at it
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), deliverTime)
			defer cancel()
			return node.Deliver(ctx, &n.c, a.Connect)
		},
	}
	cmd.Flags().StringVar(&n.c.Dir, "dir", n.c.Dir, "as the prolog's")
	return cmd
}

func newSweepCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	return &cobra.Command{
		Use: "sweep", Short: "End jobs in the daemons that Slurm does not list any more", Args: cobra.NoArgs,
		Long: `Compares the jobs that seem to be on nodes with those of slurmctld, and ends those that are
over without the report of an epilog: a node was down, or slurmctld has lost its state.
Their files are drained then, as after any job. For root, on one node, from time
to time.`,
		RunE: a.WithDaemon(func(ctx context.Context, d *client.Client, _ []string) error {
			ended, err := node.Reconcile(ctx, &n.c, d)
			if err != nil {
				return err
			}
			return a.Print(ended, func() { fmt.Fprintln(a.Out, bb.Count(len(ended), "job"), "ended") })
		}),
	}
}

func newWatchCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	every := 10 * time.Second
	cmd := &cobra.Command{
		Use: "watch", Short: "Keep the daemons' records of jobs in step with Slurm, as long as it runs", Args: cobra.NoArgs,
		Long: `Reports to the daemons the new ends of jobs whose time limit was changed, so that they
flush in time. Sends jobs with warn= their signal if their files will not be on the store when
they end. Ends jobs that Slurm has forgotten, as sweep does.

For root, as a service on all nodes, or on some: it works on the node of the first ready
daemon, and waits elsewhere. It queries slurmctld once each --every, and only while jobs
have buffers.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every <= 0 {
				return app.Usage("--every must be longer than nothing")
			}
			return node.Watch(cmd.Context(), &n.c, every, a.Connect)
		},
	}
	cmd.Flags().DurationVar(&every, "every", every, "how often to compare")
	return cmd
}

func newEmptyCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	var to []string
	var then string
	limit := 10 * time.Minute
	cmd := &cobra.Command{
		Use: "empty [NODES]", Short: "Empty nodes before they stop, and run the command that stops them (Slurm's SuspendProgram, RebootProgram)", Args: cobra.MaximumNArgs(1),
		Long: `Drains nodes, by a list as Slurm writes it (n[1-3],n7), or the daemon's own. Bytes that are
on no store are moved to the nodes in --to, as far as these have room, and else flushed,
or moved elsewhere. Then runs the program in --then, with the nodes that are empty
by now as its argument (none, if none were named). A node that could not be emptied within
--limit is not among them; it works on, and the reason is printed.`,
		Example: "  bbctl slurm empty --to io1,io2 --then /usr/local/sbin/power-off 'n[1-3]'\n  bbctl slurm empty --to io1,io2 --then /sbin/reboot",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			// Slurm's own user, who has the cluster key, acts for the system.
			d, err := (&luaApp{App: a}).dialAs(ctx, client.User{})
			if err != nil {
				return err
			}
			defer d.Close()
			list := strings.Join(args, "")
			empty, err := node.Empty(ctx, &n.c, d, list, app.NodeIDs(to))
			if len(empty) == 0 || then == "" {
				return err
			}
			var nodes []string
			if list != "" {
				nodes = []string{strings.Join(empty, ",")}
			}
			program := exec.CommandContext(cmd.Context(), then, nodes...)
			program.Stdout, program.Stderr = a.Out, a.Err
			return errors.Join(program.Run(), err)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&to, "to", nil, "nodes that are to receive files that are on no store")
	f.StringVar(&then, "then", "", "command to run when the nodes are empty")
	f.DurationVar(&limit, "limit", limit, "how long it may take")
	return cmd
}

func newTaskPrologCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	cmd := &cobra.Command{
		Use: "task-prolog", Short: "Print the variables of the job's tasks (Slurm's TaskProlog)", Args: cobra.NoArgs,
		Long: `Runs as the job's user before each task. Prints "export NAME=value" lines for the
variables from the prolog: BB_JOB_STRIPED and the other addresses of the job's buffers,
FOREBAY_BUFFER, FOREBAY_SOCKET, FOREBAY_TOKEN_FILE, and FOREBAY_DIR if the prolog has --mount.
Then BB_JOB_STRIPED is that directory too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := node.TaskProlog(cmd.Context(), &n.c, os.Getenv("SLURM_JOB_ID"), os.Environ())
			fmt.Fprint(a.Out, text)
			return err
		},
	}
	cmd.Flags().StringVar(&n.c.Dir, "dir", n.c.Dir, "as the prolog's")
	return cmd
}

func newTaskEpilogCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	cmd := &cobra.Command{
		Use: "task-epilog", Short: "Report a job's use of its buffer, and its problems (Slurm's TaskEpilog)", Args: cobra.NoArgs,
		Long: `Runs as the job's user after each task. The first task of a step reports for all. Its lines
appear in the job's output: that files of the job's buffer are lost, will not be on
their store in time, or could not be flushed, or that writers had to wait. Mostly it prints
nothing. When the job's script ends, or its first step, it notes the buffer's figures in the
job's Comment, unless there is a comment already. It always succeeds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Only the task has got the variables that TaskProlog exports.
			for name, value := range node.TaskEnv(&n.c, os.Getenv("SLURM_JOB_ID")) {
				if os.Getenv(name) == "" {
					os.Setenv(name, value)
				}
			}
			buffer := os.Getenv("FOREBAY_BUFFER")
			if buffer == "" || os.Getenv("SLURM_PROCID") != "0" {
				return nil
			}
			job := ""
			if step := os.Getenv("SLURM_STEP_ID"); step == "" || step == "0" { // the script's has none
				job = os.Getenv("SLURM_JOB_ID")
			}
			// A daemon that is away is the epilog's business.
			lines, _ := node.TaskEpilog(cmd.Context(), job, buffer, a.Connect)
			for _, line := range lines {
				fmt.Fprintln(a.Err, line)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&n.c.Dir, "dir", n.c.Dir, "as the prolog's")
	return cmd
}

func newSlurmInstallCommand(a *app.App) *cobra.Command {
	n := newNodeApp(a)
	var to, bbctl, path string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "install", Short: "Write the scripts that Slurm calls on nodes, and print the lines for slurm.conf", Args: cobra.NoArgs,
		Long: `Writes prolog, epilog, task-prolog and task-epilog into --to, with the flags that are given
here, and a unit of systemd for watch, and prints the lines for slurm.conf. The folder has to be on every node: run it on
each, or where it is shared. A site with scripts of its own calls these from them.`,
		Example: "  bbctl slurm install --dry-run\n  bbctl slurm install --default 'type=scratch capacity=64GiB pool=memory'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := n.config(); err != nil {
				return err
			}
			if bbctl == "" {
				var err error
				if bbctl, err = os.Executable(); err != nil {
					return err
				}
			}
			var flags, taskFlags []string
			cmd.Flags().Visit(func(f *pflag.Flag) {
				switch f.Name {
				case "to", "bbctl", "path", "dry-run", "json":
					return
				case "dir":
					taskFlags = append(taskFlags, "--"+f.Name+"="+f.Value.String())
				}
				flags = append(flags, "--"+f.Name+"="+f.Value.String())
			})
			wrappers := node.Wrappers(bbctl, path, flags, taskFlags)
			files := append(slices.Clone(wrappers), node.Unit(bbctl, path))
			if dryRun {
				for _, w := range files {
					fmt.Fprintf(a.Out, "# %s\n%s\n", filepath.Join(to, w.Name), w.Text)
				}
			} else {
				paths, err := node.Install(to, files)
				if err != nil {
					return err
				}
				for _, p := range paths {
					fmt.Fprintln(a.Out, "# wrote", p)
				}
			}
			fmt.Fprintf(a.Out, "# for slurm.conf:\n%s", node.SlurmConf(to, wrappers, n.c.Feature))
			fmt.Fprintf(a.Out, "# and on the nodes: systemctl enable --now %s\n", filepath.Join(to, node.UnitName))
			return nil
		},
	}
	n.flags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&to, "to", "/etc/slurm/forebay", "folder for the scripts")
	f.StringVar(&bbctl, "bbctl", "", "the bbctl that they call (default: this one)")
	f.StringVar(&path, "path", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "where Slurm's commands are found")
	f.BoolVar(&dryRun, "dry-run", false, "only print the files to write")
	return cmd
}
