package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/status"
	"forebay/internal/bb"
	"forebay/slurm"
	"forebay/slurm/directive"
)

func newPlanCommand(a *app.App) *cobra.Command {
	var word string
	cmd := &cobra.Command{
		Use: "plan SCRIPT", Short: "Predict whether a job's buffer fits, and how long its data takes", Args: cobra.ExactArgs(1),
		Long: `Reads the directives of a job script, as Slurm's hooks would, and prints their faults,
whether the capacity is there, and how long copying in, copying out and draining
will take. The rates are those that the daemons have measured with the same store, in
stages and drains of the last day or in flushes of now. Rates that were not measured are
named. Pipes, sockets and devices that a stage-in would leave out are listed.
It changes nothing.`,
		Example: "  bbctl plan job.sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			return plan(cmd.Context(), a, args[0], word)
		},
	}
	cmd.Flags().StringVar(&word, "directive", "", "prefix of directives: BB or DW (default: either)")
	return cmd
}

// planned is the output of bbctl plan.
type planned struct {
	Problems []string `json:"problems"` // as warnings; errors end it
	slurm.Plan

	Skipped      []skipped `json:"skipped"` // at most maxSkipped
	SkippedTotal int       `json:"skipped_total"`
}

// skipped is something that a stage-in leaves out.
type skipped struct {
	Path string `json:"path"`
	Type string `json:"type"` // pipe, socket, device
}

// maxSkipped bounds the recorded names of files that are left out, and maxPrinted the printed ones.
const (
	maxSkipped = 1000
	maxPrinted = 20
)

func plan(ctx context.Context, a *app.App, script, word string) error {
	text, err := readScript(script)
	if err != nil {
		return err
	}
	words := []string{"BB", "DW"}
	if word != "" {
		words = []string{word}
	}
	r, problems := directive.Parse(text, directive.Options{Prefixes: words})
	if err := problems.Err(); err != nil {
		return err
	}
	if r.Empty() {
		return app.Usage(script + " holds no directives")
	}
	v, err := ownVars(script)
	if err != nil {
		return err
	}
	in := slurm.PlanInput{Pool: "memory"}
	if in.Work, err = r.Resolve(v); err != nil {
		return err
	}
	if r.Job != nil && r.Job.Pool != "" {
		in.Pool = r.Job.Pool
	}
	p := planned{Problems: []string{}, Skipped: []skipped{}}
	for i, s := range in.Work.In {
		in.Sizes = append(in.Sizes, p.sizeAt(s.URL, r.In[i].URL))
	}
	if err := look(ctx, a, &in); err != nil {
		return err
	}
	p.Plan = slurm.MakePlan(&in)
	for _, w := range problems.Warnings() {
		p.Problems = append(p.Problems, w.String())
	}
	if err := a.Print(p, func() { printPlan(a, &p) }); err != nil {
		return err
	}
	if p.Fits == slurm.FitsNever {
		return &client.Error{
			Kind: client.ErrNoSpace, Op: "plan", Path: script, Err: fmt.Errorf("no space: %s are asked for, and there are %s", app.Size(p.Capacity), app.Size(p.Total)),
			Remedy: "ask for less, or for another pool",
		}
	}
	return nil
}

// ownVars are the values for a job of this user's. Its ids are not known yet.
func ownVars(script string) (*directive.Vars, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	v := &directive.Vars{
		Buffer: directive.JobBufferPrefix + "0", Job: "0", User: fmt.Sprint(os.Getuid()), UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		Name: filepath.Base(script), WorkDir: dir,
	}
	if u, err := user.Current(); err == nil {
		v.User = u.Username
	}
	return v, nil
}

// sizeAt is the number of bytes at a URL, if that can be read from here, and negative otherwise. A URL
// with a job's ids in its name does not exist yet. It records files that are left out.
func (p *planned) sizeAt(url, as string) int64 {
	where, err := bb.ParseBacking(url)
	if err != nil || !where.IsDirectory() || strings.Contains(as, "%j") || strings.Contains(as, "%a") || strings.Contains(as, "%A") || strings.Contains(url, "%") {
		return -1
	}
	path := where.Path
	root, err := os.OpenRoot(filepath.Dir(path)) // no link leads a stage-in out of it either
	if err != nil {
		return -1
	}
	defer root.Close()
	total := int64(0)
	err = fs.WalkDir(root.FS(), filepath.Base(path), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() && d.Type() != fs.ModeSymlink {
			p.skip(filepath.Join(filepath.Dir(path), name), d.Type())
			return nil
		}
		info, err := root.Lstat(name)
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		return -1
	}
	return total
}

// skip records a file that a stage-in leaves out.
func (p *planned) skip(path string, mode fs.FileMode) {
	kind := "device"
	switch mode.Type() {
	case fs.ModeNamedPipe:
		kind = "pipe"
	case fs.ModeSocket:
		kind = "socket"
	}
	if p.SkippedTotal++; len(p.Skipped) < maxSkipped {
		p.Skipped = append(p.Skipped, skipped{path, kind})
	}
}

// look requests the daemons' state, and their measured rates.
func look(ctx context.Context, a *app.App, in *slurm.PlanInput) error {
	c, err := a.Dial(ctx)
	if err != nil {
		return err
	}
	var s status.Daemon
	text, err := admin.Status(ctx, c, "")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	for _, b := range s.Buffers {
		f := slurm.Flow{Buffer: b.Name, Backing: b.Backing}
		if b.Queued > 0 { // else the rate is that of a flow which has ended
			f.Rate = b.Rate
		}
		in.Flows = append(in.Flows, f)
	}
	in.Nodes, err = admin.Nodes(ctx, c)
	if client.KindOf(err) == client.ErrUnsupported { // the daemon is alone
		free := func(t status.Tier) admin.TierUsage {
			return admin.TierUsage{Capacity: t.Capacity, Free: t.Capacity - t.Dirty, Dirty: t.Dirty}
		}
		in.Nodes, err = []admin.Node{{State: "ready", Memory: free(s.Memory), Disk: free(s.Disk)}}, nil
	}
	if err != nil {
		return err
	}
	in.Jobs, err = admin.Operations(ctx, c)
	if client.KindOf(err) == client.ErrUnsupported {
		err = nil
	}
	return err
}

func printPlan(a *app.App, p *planned) {
	for _, w := range p.Problems {
		fmt.Fprintln(a.Out, "note:", w)
	}
	capacity := "no capacity is asked for"
	if p.Capacity > 0 {
		capacity = app.Size(p.Capacity) + " of " + p.Pool
	}
	fits := map[slurm.Fit]string{slurm.FitsNow: "fits now", slurm.FitsLater: "fits when others have drained", slurm.FitsNever: "does not fit"}
	fmt.Fprintf(a.Out, "buffer: %s: %s (%s free of %s on %s)\n", capacity, fits[p.Fits], app.Size(p.Free), app.Size(p.Total), bb.Count(p.Nodes, "node"))
	for i := range p.In {
		printCopy(a, "stage-in", &p.In[i])
	}
	for i, s := range p.Skipped {
		if i == maxPrinted {
			fmt.Fprintf(a.Out, "and %d more are left out\n", p.SkippedTotal-i)
			break
		}
		fmt.Fprintf(a.Out, "left out: %s: a %s, which is not copied\n", bb.Printable(s.Path), s.Type)
	}
	for i := range p.Out {
		printCopy(a, "stage-out", &p.Out[i])
	}
	if p.Drain != nil {
		printCopy(a, "drain", p.Drain)
	}
}

func printCopy(a *app.App, kind string, c *slurm.PlannedCopy) {
	bytes, most := "size not known", ""
	if c.AtMost {
		most = "at most "
	}
	if c.Bytes != nil {
		bytes = most + app.Size(*c.Bytes)
	}
	rate, seconds := "rate not measured", ""
	if c.Rate != nil {
		rate = fmt.Sprintf("at %s/s (%s)", app.Size(int64(*c.Rate)), c.From)
	}
	if c.Seconds != nil {
		seconds = ": " + most + app.Age(*c.Seconds)
	}
	fmt.Fprintf(a.Out, "%s %s: %s, %s%s\n", kind, c.URL, bytes, rate, seconds)
}
