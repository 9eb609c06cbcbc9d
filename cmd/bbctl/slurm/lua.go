package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/jobs"
	"forebay/slurm"
)

// defaultFolder is the folder of burst_buffer/lua's settings and of its files of jobs.
const defaultFolder = "/var/spool/forebay-slurm"

// maxScript bounds a job script. Slurm takes 4 MiB by default (max_script_size).
const maxScript = 64 << 20

// luaCommands are the verbs that burst_buffer.lua runs, with their helpers.
func luaCommands(a *app.App) []*cobra.Command {
	l := &luaApp{App: a}
	commands := []*cobra.Command{
		l.newSetup(), l.newStage("data-in", "Copy in the job's input", (*slurm.Hooks).DataIn),
		l.newVerb("real-size", "Print how many bytes of its pool the job has", func(ctx context.Context, h *slurm.Hooks) slurm.Answer { return h.RealSize(ctx, l.job) }),
		l.newVerb("paths", "Print the job's variables", func(_ context.Context, h *slurm.Hooks) slurm.Answer { return h.Paths(l.job) }),
		l.newVerb("pre-run", "Check that the job will find all its files", func(ctx context.Context, h *slurm.Hooks) slurm.Answer { return h.PreRun(ctx, l.job) }),
		l.newVerb("post-run", "Wait until nothing of the job runs any more", func(ctx context.Context, h *slurm.Hooks) slurm.Answer { return h.PostRun(ctx, l.job) }),
		l.newStage("data-out", "Copy out the job's output, and drain its buffer", (*slurm.Hooks).DataOut),
		l.newTeardown(), l.newVerb("status", "Print the state of a job's buffer", l.status),
		l.newPools(), l.newReap(), l.newTend(), l.newInstall(),
	}
	for _, c := range commands {
		c.Flags().StringVar(&l.folder, "folder", defaultFolder, "folder of the settings and the records of jobs")
	}
	return commands
}

func newSlurmCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "slurm", Short: "The work of Slurm's hooks for jobs", Args: cobra.NoArgs,
		PersistentPreRun: func(*cobra.Command, []string) { a.AtOnce = true }, // Slurm waits for its hooks
	}
	cmd.AddCommand(newSlurmNodeCommands(a)...)
	cmd.AddCommand(luaCommands(a)...)
	return cmd
}

// luaApp is the shared state of these commands.
type luaApp struct {
	*app.App
	folder, job string
}

// hooks are the verbs, with Slurm's own commands and the daemons behind them.
func (l *luaApp) hooks() (*slurm.Hooks, error) {
	folder, err := filepath.Abs(l.folder)
	if err != nil {
		return nil, err
	}
	s, err := slurm.ReadSettings(folder)
	if err != nil {
		return nil, err
	}
	return &slurm.Hooks{
		Settings: s, Slurm: slurm.Commands{}, Dial: l.dialAs,
		Log: func(line string) { fmt.Fprintln(l.Err, "bbctl slurm:", line) },
	}, nil
}

// dialAs connects as a user. This process's own user needs no proof of that.
func (l *luaApp) dialAs(ctx context.Context, u client.User) (*client.Client, error) {
	o := client.Options{
		Address: l.SocketAddress(), KeyFile: l.KeyFile, TokenFile: l.Token, CA: l.TLS.CA, Cert: l.TLS.Cert, Key: l.TLS.Key, Name: "bbctl slurm " + l.Version,
	}
	if u.UID != uint32(os.Geteuid()) || u.GID != uint32(os.Getegid()) {
		o.User = &u
	}
	return client.Dial(ctx, o)
}

// verb makes a command of a verb for one job.
func (l *luaApp) newVerb(use, short string, do func(context.Context, *slurm.Hooks) slurm.Answer) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.Flags().StringVar(&l.job, "job", "", "the job's id")
	cmd.MarkFlagRequired("job")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		h, err := l.hooks()
		if err != nil {
			return err
		}
		return l.answer(cmd.Name(), do(cmd.Context(), h))
	}
	return cmd
}

// newStage is newVerb for long work.
func (l *luaApp) newStage(use, short string, do func(*slurm.Hooks, context.Context, string, time.Duration) slurm.Answer) *cobra.Command {
	var wait time.Duration
	cmd := l.newVerb(use, short, func(ctx context.Context, h *slurm.Hooks) slurm.Answer { return do(h, ctx, l.job, wait) })
	cmd.Flags().DurationVar(&wait, "wait", 0, `wait for so long at most, and answer "busy" then; the daemons continue (default: until it is done)`)
	return cmd
}

// answer prints the outcome of a verb. Unfinished work is an error too.
func (l *luaApp) answer(verb string, a slurm.Answer) error {
	err := l.Print(a, func() {
		if a.Message != "" && a.State != "failed" {
			fmt.Fprintln(l.Out, a.Message)
		} else if a.State == "busy" {
			fmt.Fprintln(l.Out, a.State)
		}
	})
	if err == nil && a.State == "failed" {
		err = fmt.Errorf("slurm %s: %s", verb, a.Message)
	}
	return err
}

func (l *luaApp) newSetup() *cobra.Command {
	var q slurm.SetupRequest
	var script string
	cmd := l.newVerb("setup", "Read a job's directives and make its buffers", func(ctx context.Context, h *slurm.Hooks) slurm.Answer {
		text, err := readScript(script)
		if err != nil {
			return slurm.Answer{State: "failed", Message: err.Error()}
		}
		q.Job, q.Script = l.job, text
		return h.Setup(ctx, &q)
	})
	f := cmd.Flags()
	f.Uint32Var(&q.UID, "uid", 0, "the job's user")
	f.Uint32Var(&q.GID, "gid", 0, "the job's group")
	f.StringVar(&q.Pool, "pool", "", "the pool of the capacity, as Slurm has counted it")
	f.Int64Var(&q.Bytes, "bytes", 0, "how much that is")
	f.StringVar(&script, "script", "", "file with the job's script")
	f.BoolVar(&q.Expanded, "expanded", false, "Slurm has replaced %j, %u and the like in it")
	for _, name := range []string{"uid", "gid", "script"} {
		cmd.MarkFlagRequired(name)
	}
	return cmd
}

// readScript reads a job script, up to the largest size of one.
func readScript(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	if err == nil && len(text) > maxScript {
		err = app.Usage(file + " is larger than a job script may be")
	}
	return text, err
}

func (l *luaApp) newTeardown() *cobra.Command {
	var hurry bool
	cmd := l.newVerb("teardown", "End all that belongs to a job", func(ctx context.Context, h *slurm.Hooks) slurm.Answer {
		if hurry {
			return h.TeardownNow(ctx, l.job)
		}
		return h.Teardown(ctx, l.job)
	})
	cmd.Flags().BoolVar(&hurry, "hurry", false, "drop bytes that are not on the store")
	return cmd
}

// status is the output of "bbctl status --job" for a job's latest run.
func (l *luaApp) status(ctx context.Context, h *slurm.Hooks) slurm.Answer {
	text, err := l.statusText(ctx, h)
	if err != nil {
		return slurm.Answer{State: "failed", Message: err.Error()}
	}
	return slurm.Answer{State: "done", Message: strings.TrimSuffix(text, "\n")}
}

func (l *luaApp) statusText(ctx context.Context, h *slurm.Hooks) (string, error) {
	c, err := h.Dial(ctx, client.User{})
	if err != nil {
		return "", err
	}
	defer c.Close()
	list, err := admin.Lifetimes(ctx, c, l.job)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", jobs.NoRuns(l.job)
	}
	var text strings.Builder
	printer := *l.App
	printer.Out = &text
	jobs.PrintLifetime(&printer, &list[0])
	// Its user may see the progress of a copy.
	as, err := h.Dial(ctx, client.User{UID: list[0].UID, GID: list[0].GID})
	if err != nil {
		return "", err
	}
	defer as.Close()
	err = jobs.PrintProgress(ctx, &printer, as, &list[0])
	return text.String(), err
}

func (l *luaApp) newPools() *cobra.Command {
	return &cobra.Command{
		Use: "pools", Short: "Count the capacity that jobs may request, and write it for slurmctld", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := l.hooks()
			if err != nil {
				return err
			}
			pools, err := h.Pools(cmd.Context())
			if err != nil {
				return err
			}
			return l.answerPools(pools)
		},
	}
}

func (l *luaApp) answerPools(pools []slurm.Pool) error {
	type answer struct {
		slurm.Answer
		Pools []slurm.Pool `json:"pools"`
	}
	return l.Print(answer{slurm.Answer{State: "done"}, pools}, func() {
		for _, p := range pools {
			fmt.Fprintf(l.Out, "%s: %s free of %s\n", p.ID, app.Size(p.Free*p.Granularity), app.Size(p.Quantity*p.Granularity))
		}
	})
}

func (l *luaApp) newReap() *cobra.Command {
	return &cobra.Command{
		Use: "reap", Short: "End jobs in the daemons that Slurm has forgotten", Args: cobra.NoArgs,
		Long: "Compares the daemons' jobs with Slurm's once, and ends those that Slurm does not have. Unsaved data is saved first.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := l.hooks()
			if err != nil {
				return err
			}
			done, err := h.Reconcile(cmd.Context(), 0)
			return errors.Join(l.Print(done, func() {
				for _, r := range done {
					fmt.Fprintf(l.Out, "job %s, buffer %s: %s %s\n", r.Job, r.Buffer, r.State, r.Message)
				}
			}), err)
		},
	}
}

// firstUsage is the pause of tend between searches of jobs that have no figures in their records yet.
const firstUsage = 10 * time.Second

func (l *luaApp) newTend() *cobra.Command {
	var pools, reap, quiet, figures time.Duration
	cmd := &cobra.Command{
		Use: "tend", Short: "Do pools and reap again and again, beside slurmctld", Args: cobra.NoArgs,
		Long: `Counts the pools, ends jobs that Slurm has forgotten, and writes the figures of their buffers
into the records of running jobs, again and again, as the user that slurmctld runs
as. Failures are printed, and retried.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pools <= 0 || reap <= 0 || figures < 0 {
				return app.Usage("--pools and --reap must be longer than nothing")
			}
			h, err := l.hooks()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			var all sync.WaitGroup
			all.Go(func() {
				l.again(ctx, "pools", pools, func() error {
					_, err := h.Pools(ctx)
					return err
				})
			})
			all.Go(func() {
				l.again(ctx, "reap", reap, func() error {
					_, err := h.Reconcile(ctx, quiet)
					return err
				})
			})
			if figures > 0 {
				all.Go(func() {
					l.again(ctx, "figures", min(figures, firstUsage), func() error { return h.RecordUsage(ctx, figures) })
				})
			}
			all.Wait()
			return nil
		},
	}
	cmd.Flags().DurationVar(&pools, "pools", 10*time.Second, "time between two counts")
	cmd.Flags().DurationVar(&reap, "reap", time.Minute, "time between two searches for forgotten jobs")
	cmd.Flags().DurationVar(&quiet, "quiet", slurm.Quiet, "how long a job must be absent from Slurm before it is ended")
	cmd.Flags().DurationVar(&figures, "figures", time.Minute, "time between two notes in the record of a job, the first of which comes within 10 seconds; 0: none")
	return cmd
}

// again does something at once and then every so often until ctx ends.
func (l *luaApp) again(ctx context.Context, what string, every time.Duration, do func() error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := do(); err != nil && ctx.Err() == nil {
			fmt.Fprintf(l.Err, "bbctl slurm tend: %s: %v\n", what, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (l *luaApp) newInstall() *cobra.Command {
	s := slurm.Settings{}
	var conf, word, bbctl, owner string
	var profiles []string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "install-lua", Short: "Write burst_buffer.lua and its settings", Args: cobra.NoArgs,
		Long: `Writes burst_buffer.lua, burst_buffer.conf and forebay_submit.lua beside slurm.conf,
and the settings into --folder, which must belong to the user that slurmctld runs as
(and lie where all controllers see it). The options --socket, --key-file and --tls-…
that are given here are those of the hooks: a daemon's TCP address, or several with
commas, and the cluster key or a client's certificate, since hooks act for jobs' users.`,
		Example: "  bbctl slurm install-lua --cluster lab --socket tcp://n1:7481,tcp://n2:7481 --key-file /etc/forebay/slurm.key",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if s.Folder, err = filepath.Abs(l.folder); err != nil {
				return err
			}
			if conf, err = filepath.Abs(conf); err != nil {
				return err
			}
			if s.Bbctl, err = l.command(bbctl); err != nil {
				return err
			}
			s.Prefixes = []string{word}
			s.Profiles = map[string]string{}
			for _, p := range profiles {
				name, text, ok := strings.Cut(p, ":")
				if !ok {
					return app.Usage("--profile " + p + " is not NAME:OPTIONS")
				}
				s.Profiles[name] = text
			}
			if err := s.Validate(); err != nil {
				return err
			}
			if dryRun {
				for _, name := range []string{slurm.BurstBufferFile, slurm.ConfigFile, slurm.SubmitFile} {
					fmt.Fprintf(l.Out, "would write %s (%d bytes)\n", filepath.Join(conf, name), len(s.Files()[name]))
				}
				fmt.Fprintf(l.Out, "slurm.conf needs:\n%s", s.SlurmConf())
				return nil
			}
			said, err := s.Install(conf)
			for _, line := range said {
				fmt.Fprintln(l.Out, line)
			}
			if err == nil && os.Geteuid() == 0 {
				err = giveFolder(s.Folder, owner)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(l.Out, "slurm.conf needs:\n%s", s.SlurmConf())
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&conf, "conf-dir", "/etc/slurm", "where slurm.conf lies")
	f.StringVar(&bbctl, "bbctl", "", "the bbctl that hooks run (default: this one)")
	f.StringVar(&owner, "slurm-user", "slurm", "the user that slurmctld runs as; the folder becomes its own")
	f.StringVar(&s.Cluster, "cluster", "", "Slurm's ClusterName")
	f.StringVar(&word, "directive", "BB", "lines that begin with # and this are directives: BB or DW")
	f.StringSliceVar(&s.Pools, "pool", []string{"memory"}, "pools that jobs may request: memory, disk")
	f.StringVar(&s.Default, "default-pool", "memory", `pool of a capacity that is given without one; "": jobs must name one`)
	f.StringArrayVar(&profiles, "profile", nil, "NAME:OPTIONS that jobs get with profile=NAME")
	f.StringArrayVar(&s.Env, "env", nil, "NAME=value for every job with a buffer, such as FOREBAY_SOCKET=/run/forebay/bbd.sock")
	f.Int64Var(&s.Granule, "granularity", 64<<20, "bytes to which capacities are rounded up")
	f.IntVar(&s.StageInLimit, "stage-in-limit", 0, "seconds that a stage-in is tried while its store does not answer (default 3600)")
	f.BoolVar(&s.Poll, "poll", false, "Slurm is 24.05 or later, and polls the progress of stages")
	f.BoolVar(&dryRun, "dry-run", false, "only print the files to write")
	cmd.MarkFlagRequired("cluster")
	return cmd
}

// giveFolder makes slurmctld's user the owner of the folder, and of nothing in it.
func giveFolder(folder, owner string) error {
	u, err := user.Lookup(owner)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	return os.Chown(folder, uid, -1)
}

// command is how hooks run bbctl: with the options for the connection that are given now.
func (l *luaApp) command(path string) ([]string, error) {
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	words := []string{path}
	for _, o := range []struct{ flag, value string }{
		{"--socket", l.Address}, {"--key-file", l.KeyFile}, {"--tls-ca", l.TLS.CA}, {"--tls-cert", l.TLS.Cert}, {"--tls-key", l.TLS.Key},
	} {
		if o.value != "" {
			words = append(words, o.flag, o.value)
		}
	}
	return words, nil
}
