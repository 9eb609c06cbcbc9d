package buffers

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

func newBufferCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{Use: "buffer", Short: "Create, list, show, rebuild and destroy buffers", Args: cobra.NoArgs}
	cmd.AddCommand(newBufferCreateCommand(a), newBufferListCommand(a), newBufferShowCommand(a), newBufferRebuildCommand(a), newBufferDestroyCommand(a))
	return cmd
}

// bufferOptions are the flags of buffer create, as people write them.
type bufferOptions struct {
	backing, capacity, durability, codec, existing, limit, mode, job string
	keep, tier, flush                                                []string
	keepNone, noWait, receipt, shared                                bool
	dirtyAge                                                         time.Duration
	replicas                                                         int
}

func newBufferCreateCommand(a *app.App) *cobra.Command {
	var o bufferOptions
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a buffer in front of a store", Args: cobra.ExactArgs(1),
		Long: `Creates a buffer. Its store is checked now: reachable, writable, credentials.

A buffer without --backing is scratch space: nothing in it is ever flushed.

No buffer is made whose store is that of another buffer, or lies below or above it, unless
the store is --shared: with --existing=keep for both neither replaces the other's files,
with overwrite the last flush wins. Buffers of one user's jobs that keep files need no --shared.`,
		Example: "  bbctl buffer create ckpt --backing file:///lustre/me/ckpt --capacity 64GiB\n" +
			"  bbctl buffer create hbase --backing file:///lustre/me/hbase --tier WALs/=memory --tier '*=disk'\n" +
			"  bbctl buffer create run1 --backing /lustre/me/run1 --flush 'step-*/=every 5'\n" +
			"  bbctl buffer create out --backing 's3://bucket/run1?endpoint=http://127.0.0.1:7070&path_style=true' --codec zstd",
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := o.spec(args[0])
			if err != nil {
				return err
			}
			c, err := a.Dial(cmd.Context())
			if err != nil {
				return err
			}
			made, err := admin.CreateBuffer(cmd.Context(), c, spec)
			if err != nil {
				return err
			}
			sayExisting(a, &made)
			return a.Print(describeBuffer(&made), func() { fmt.Fprintln(a.Out, "created bb://"+made.Name+"/") })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.backing, "backing", "", "file:///path?layout=… (of Lustre), /path or s3://bucket/prefix?endpoint=…&region=…&path_style=true")
	f.StringVar(&o.capacity, "capacity", "", "most dirty bytes it may hold (default: no limit of its own)")
	f.StringVar(&o.durability, "durability", "resident", "state that Close waits for: resident (memory) or flushed (the store)")
	f.StringVar(&o.codec, "codec", "", "compress on the way out: zstd or s2")
	f.StringArrayVar(&o.keep, "keep", nil, "pattern of temporary names, which are not flushed (default _temporary/, .spark-staging*/, *.tmp)")
	f.StringArrayVar(&o.tier, "tier", nil, "PATTERN=disk or PATTERN=memory: where files with such names go; the first that fits counts (default: memory)")
	f.StringArrayVar(&o.flush, "flush", nil, "PATTERN/=every N: of the directories that fit and end with a number, flush those with a multiple of N, and the newest when the buffer is drained; or PATTERN/=last at end of job, PATTERN/=when a second copy is gone")
	f.BoolVar(&o.keepNone, "keep-none", false, "flush every name")
	f.StringVar(&o.limit, "flush-limit", "", "bytes a second to the store")
	f.StringVar(&o.existing, "existing", string(admin.ExistingKeep), "files of the store that the buffer did not write: keep (one of the same name in the buffer stays there, in conflict), overwrite, or refuse (no buffer is made)")
	f.BoolVar(&o.shared, "shared", false, "other buffers may have the same store, or one below or above it")
	f.DurationVar(&o.dirtyAge, "dirty-age", 0, "oldest a dirty byte may get before its flush begins (default: the daemon's)")
	f.BoolVar(&o.noWait, "no-wait", false, "writes without room fail instead of waiting")
	f.BoolVar(&o.receipt, "receipt", false, "keep the receipt on the store beside the data")
	f.IntVar(&o.replicas, "replicas", 1, "nodes that hold each committed byte: 1, or 2 to survive the loss of one before it is flushed")
	f.StringVar(&o.mode, "mode", "0700", "who may use it, as for a directory")
	f.StringVar(&o.job, "job", "", "the job that it belongs to")
	return cmd
}

var tiers = map[string]admin.Tier{admin.TierMemory.String(): admin.TierMemory, admin.TierDisk.String(): admin.TierDisk}

func (o *bufferOptions) spec(name string) (admin.BufferSpec, error) {
	spec := admin.BufferSpec{
		Name: name, Backing: app.StoreURL(o.backing), Durability: admin.Durability(o.durability), Codec: o.codec, NoFlush: o.keep,
		DirtyAge: o.dirtyAge, NoWait: o.noWait, Receipt: o.receipt, Job: o.job, Replicas: o.replicas, Existing: admin.Existing(o.existing),
		Shared: o.shared,
	}
	if o.keepNone {
		spec.NoFlush = []string{}
	}
	for _, rule := range o.tier {
		pattern, name, ok := strings.Cut(rule, "=")
		tier, known := tiers[name]
		if !ok || !known {
			return spec, app.Usage("--tier " + rule + " is not PATTERN=disk or PATTERN=memory")
		}
		spec.Tiers = append(spec.Tiers, admin.TierRule{Pattern: pattern, Tier: tier})
	}
	for _, text := range o.flush {
		rule, err := admin.ParseFlushRule(text)
		if err != nil {
			return spec, err
		}
		spec.Flush = append(spec.Flush, rule)
	}
	for _, s := range []struct {
		what, text string
		to         *int64
	}{{"capacity", o.capacity, &spec.Capacity}, {"flush limit", o.limit, &spec.FlushLimit}} {
		if s.text == "" {
			continue
		}
		n, err := app.ParseSize(s.what, s.text)
		if err != nil {
			return spec, err
		}
		*s.to = n
	}
	mode, err := strconv.ParseUint(o.mode, 8, 9)
	if err != nil {
		return spec, app.Usage("--mode " + o.mode + " is not an octal mode such as 0750")
	}
	spec.Mode = fs.FileMode(mode)
	return spec, nil
}

// bufferJSON is how a buffer is printed with --json. Sizes are bytes.
type bufferJSON struct {
	Name       string   `json:"name"`
	UID        uint32   `json:"uid"`
	GID        uint32   `json:"gid"`
	Mode       string   `json:"mode"`
	Capacity   int64    `json:"capacity"`
	Backing    string   `json:"backing"`
	Durability string   `json:"durability"`
	Codec      string   `json:"codec"`
	Keep       []string `json:"keep"`
	Existing   string   `json:"existing,omitempty"`
	foundJSON
	Tiers      []string  `json:"tiers,omitempty"`
	Flush      []string  `json:"flush,omitempty"`
	FlushLimit int64     `json:"flush_limit"`
	DirtyAge   float64   `json:"dirty_age"` // seconds; 0: the daemon's default
	NoWait     bool      `json:"no_wait"`
	Receipt    bool      `json:"receipt"`
	Replicas   int       `json:"replicas"`
	Job        string    `json:"job"`
	Created    time.Time `json:"created"`
	State      string    `json:"state"`
}

// foundJSON is the files that the store of a new buffer held.
type foundJSON struct {
	Found      string `json:"found,omitempty"`       // a file
	FoundTotal int    `json:"found_total,omitempty"` // such files, counted to 1,001
}

func describeBuffer(b *admin.BufferSpec) bufferJSON {
	return bufferJSON{
		Name: b.Name, UID: b.UID, GID: b.GID, Mode: fmt.Sprintf("%04o", b.Mode.Perm()), Capacity: b.Capacity, Backing: b.Backing,
		Durability: string(b.Durability), Codec: b.Codec, Keep: b.NoFlush, Tiers: describeTiers(b.Tiers),
		Flush: bb.FlushRuleTexts(b.Flush), Existing: string(b.Existing), foundJSON: foundJSON{b.Found, b.FoundTotal}, FlushLimit: b.FlushLimit, DirtyAge: b.DirtyAge.Seconds(),
		NoWait: b.NoWait, Receipt: b.Receipt, Replicas: max(b.Replicas, 1), Job: b.Job, Created: b.Created, State: string(b.State),
	}
}

// sayExisting prints the files that the store of a new buffer holds already, and the policy for them.
func sayExisting(a *app.App, b *admin.BufferSpec) {
	if b.Found == "" {
		return
	}
	at := client.Address{Buffer: b.Name}.String()
	fmt.Fprintf(a.Err, "bbctl: the store of %s holds %s\n", at, bb.FoundText(b.FoundTotal, b.Found))
	if !b.Existing.Keeps() {
		fmt.Fprintln(a.Err, "bbctl: a flush replaces those that have the name of a file in the buffer (--existing=keep keeps them)")
		return
	}
	fmt.Fprintf(a.Err, "bbctl: they stay as they are: a file of the same name stays in the buffer, in conflict, and bbctl drain %s lists it\n"+
		"bbctl: to go on with them: bbctl stage-in %s %s; to replace them: make the buffer with --existing=overwrite\n", b.Name, shellWord(b.Backing), at)
}

// shellWord quotes a URL as a word of a command to be copied.
func shellWord(url string) string {
	if !strings.ContainsAny(url, "?&$;*'\"\\ ()<>|`") {
		return url
	}
	return "'" + strings.ReplaceAll(url, "'", `'\''`) + "'"
}

// describeTiers returns rules in the form of --tier.
func describeTiers(rules []admin.TierRule) (list []string) {
	for _, r := range rules {
		list = append(list, r.Pattern+"="+r.Tier.String())
	}
	return list
}

func newBufferListCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the buffers that you may use", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listBuffers(a, cmd)
		},
	}
}

func listBuffers(a *app.App, cmd *cobra.Command) error {
	c, err := a.Dial(cmd.Context())
	if err != nil {
		return err
	}
	all, err := admin.Buffers(cmd.Context(), c)
	if err != nil {
		return err
	}
	list := []bufferJSON{}
	for i := range all {
		list = append(list, describeBuffer(&all[i]))
	}
	return a.Print(list, func() {
		rows := [][]string{{"NAME", "STATE", "UID", "CAPACITY", "BACKING"}}
		for _, b := range list {
			capacity := "-"
			if b.Capacity > 0 {
				capacity = app.Size(b.Capacity)
			}
			rows = append(rows, []string{b.Name, b.State, strconv.Itoa(int(b.UID)), capacity, b.Backing})
		}
		a.Table(rows)
	})
}

func newBufferShowCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show how a buffer is set up", Args: cobra.ExactArgs(1),
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			spec, err := admin.BufferInfo(ctx, c, args[0])
			if err != nil {
				return err
			}
			b := describeBuffer(&spec)
			return a.Print(b, func() {
				a.Table([][]string{
					{"name", b.Name},
					{"state", b.State},
					{"owner", fmt.Sprintf("uid %d, gid %d, mode %s", b.UID, b.GID, b.Mode)},
					{"backing", b.Backing},
					{"capacity", app.Size(b.Capacity)},
					{"durability", b.Durability},
					{"codec", b.Codec},
					{"keep", fmt.Sprint(b.Keep)},
					{"existing", b.Existing},
					{"tiers", strings.Join(b.Tiers, " ")},
					{"flush", strings.Join(b.Flush, "; ")},
					{"flush limit", app.Size(b.FlushLimit) + "/s"},
					{"created", b.Created.Format(time.RFC3339)},
				})
			})
		}),
	}
}

func newBufferDestroyCommand(a *app.App) *cobra.Command {
	var discard, dryRun, yes bool
	cmd := &cobra.Command{
		Use: "destroy NAME", Short: "Destroy a buffer; refused while it holds dirty data", Args: cobra.ExactArgs(1),
		Long: `Destroys a buffer. It is refused while something in it is not on the store, or is lost:
drain the buffer, and remove the files that bbctl lost lists, or give --discard.`,
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			at := app.Found{Buffer: c.Buffer(args[0]), At: client.Address{Buffer: args[0]}}
			switch {
			case dryRun:
				return wouldDestroy(ctx, a, at)
			case discard && !yes:
				if err := a.ConfirmUnsaved(ctx, "buffer destroy", at); err != nil {
					return err
				}
			}
			destroy := admin.DestroyBuffer
			if discard {
				destroy = admin.DiscardBuffer
			}
			if err := destroy(ctx, c, args[0]); err != nil {
				return err
			}
			return a.Print(map[string]string{"destroyed": args[0]}, func() { fmt.Fprintln(a.Out, "destroyed", args[0]) })
		}),
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "also discard bytes that were never flushed, and the list of lost files")
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only list files that are not on the store: they keep the buffer, or would be lost")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before files are lost")
	return cmd
}

// wouldDestroy lists the loss by the end of a buffer.
func wouldDestroy(ctx context.Context, a *app.App, at app.Found) error {
	err := app.Unsaved(ctx, at, func(e *client.Entry) error {
		return a.Would("lose", client.Address{Buffer: at.At.Buffer, Path: e.Path}.String(), "", e.Size)
	})
	if err != nil {
		return err
	}
	return a.Would("destroy", at.At.String(), "", 0)
}
