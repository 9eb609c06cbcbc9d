package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"forebay/bbd"
	"forebay/bbd/fabric"
	"forebay/bbd/startup"
	"forebay/bbd/store"
	"forebay/bbd/store/folder"
	"forebay/bbd/storerules"
	"forebay/cmd/bbd/config"
	"forebay/cmd/bbd/notify"
	"forebay/cmd/bbd/privilege"
	"forebay/flusher/backing/asuser"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/embedded"
)

type runOptions struct {
	dev    bool
	dir    string
	memory string
	file   string
}

// defaultDevDir is the default folder of the state of bbd --dev.
func defaultDevDir() string {
	if base, err := os.UserCacheDir(); err == nil {
		return filepath.Join(base, "forebay")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("forebay-%d", os.Getuid()))
}

// run starts the daemon and stops it in order when ctx ends.
func run(ctx context.Context, flags *pflag.FlagSet, o runOptions) error {
	cfg, err := load(flags, o)
	if err != nil {
		return err
	}
	log, err := logger(cfg.Log)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler) // the start logs the place of regions once more
	if err := privilege.Shed(func() error { return mountMemory(cfg, quiet) }); err != nil {
		return err
	}
	steps := startup.New(log, "the files of keys and certificates to be read")
	defer steps.End()
	proofs, err := readSecrets(cfg)
	if err != nil {
		return err
	}
	steps.At("the lock of "+cfg.StateDir, nil)
	// Before anything below the folder is opened, and until all of it is closed, since two servers
	// on the files of one namespace destroy it.
	lock, err := folder.LockState(cfg.StateDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := checkMemory(cfg.Memory.Size, totalMemory()); err != nil {
		return err
	}
	hangups, unfollow := followHangups(cfg)
	defer unfollow()
	steps.At("the cluster's gossip", nil)
	members, err := joinCluster(ctx, cfg, proofs.keys.Keys(), log)
	if err != nil {
		return err
	}
	defer members.close()
	steps.At("the namespace server of this daemon in "+natsDir(cfg), nil)
	server, source, err := namespaceServer(ctx, cfg, proofs, log)
	if err != nil {
		return err
	}
	if server != nil {
		defer server.Shutdown()
	}
	steps.At("folders and file systems of the configuration", nil)
	daemonConfig, err := adapt(cfg, proofs, source, log)
	if err != nil {
		return err
	}
	daemonConfig.Steps = steps
	if os.Geteuid() == 0 {
		steps.At("store workers of an earlier start", nil)
		workers, err := asuser.New(asuser.Options{Logger: log, Dir: filepath.Join(cfg.StateDir, asuser.DirName)})
		if err != nil {
			return err
		}
		defer func() { tellOf(log, "stopping store workers", workers.Close()) }()
		daemonConfig.Backing.Workers = workers
	}
	members.configure(&daemonConfig)
	began := time.Now()
	d, err := bbd.New(ctx, daemonConfig)
	if err != nil {
		return err
	}
	steps.End()
	members.follow(d)
	log.Info("ready", "version", version, "socket", cfg.Listen.Socket, "admin", d.Admin(), "took", time.Since(began).Round(time.Millisecond))
	if o.dev && term.IsTerminal(int(os.Stdout.Fd())) {
		greet(cfg, d.Admin())
	}
	tell(log, notify.Ready)
	err = awaitEnd(ctx, members, log, hangups, func() { proofs.reread(cfg, members, log) })
	tell(log, notify.Stopping)
	log.Info("stopping")
	members.leave(context.WithoutCancel(ctx))
	return errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
}

// followHangups returns the hangups on which keys and certificates are read again, until stop. Without
// any a hangup ends the daemon with its terminal.
func followHangups(cfg config.Config) (hangups <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	if cfg.KeyFile == "" && cfg.TLS.CA == "" {
		return c, func() {}
	}
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// awaitEnd waits until ctx ends, or until the daemon has to leave the cluster, which is an error.
func awaitEnd(ctx context.Context, m *membership, log *slog.Logger, hangups <-chan os.Signal, reread func()) error {
	for {
		select {
		case <-hangups:
			reread()
		case <-ctx.Done():
			return nil
		case <-m.done():
			err := m.failed()
			log.Error("this daemon has to leave the cluster", "err", err)
			return err
		}
	}
}

// tellOf logs an error, if there is one.
func tellOf(log *slog.Logger, what string, err error) {
	if err != nil {
		log.Warn(what, "err", err)
	}
}

// tell notifies the service manager, where there is one.
func tell(log *slog.Logger, what func() error) {
	if err := what(); err != nil {
		log.Warn("telling the service manager", "err", err)
	}
}

// mountMemory mounts the memory tier's file system, which takes a right that the daemon does
// without afterwards.
func mountMemory(cfg config.Config, log *slog.Logger) error {
	if err := checkMemory(cfg.Memory.Size, totalMemory()); err != nil {
		return err
	}
	o := storeOptions(cfg)
	o.Log = log
	return store.Mount(o)
}

func greet(cfg config.Config, admin string) {
	fmt.Printf("forebay is ready. In another terminal:\n\n")
	if cfg.Listen.Socket != wellKnownSocket() {
		fmt.Printf("  export FOREBAY_SOCKET=%s\n", cfg.Listen.Socket)
	}
	fmt.Printf("  bbctl buffer create demo --backing file:///some/directory\n")
	fmt.Printf("  bbctl put FILE bb://demo/\n")
	fmt.Printf("  bbctl drain demo\n\nstate: %s   metrics: http://%s/metrics\n", cfg.StateDir, admin)
}

func load(flags *pflag.FlagSet, o runOptions) (config.Config, error) {
	base := config.Default()
	if o.dev {
		dir, err := devDir(o.dir)
		if err != nil {
			return base, err
		}
		base = config.Dev(dir)
		if o.dir == "" {
			base.Listen.Socket = wellKnownSocket()
			if err := ownFolder(filepath.Dir(base.Listen.Socket)); err != nil {
				return base, err
			}
		}
		if o.file == "" {
			o.file = os.DevNull // a site's configuration is not for this one
		}
	} else if o.dir != "" {
		return base, bb.E(bb.Invalid, "start", o.dir, "--dir goes with --dev").WithRemedy("use --state-dir")
	}
	if o.memory != "" {
		if err := flags.Set("memory-size", o.memory); err != nil {
			return base, err
		}
	}
	return config.Load(config.Source{Base: base, File: o.file, Flags: flags})
}

// ownFolder makes a folder, and refuses one that another user has made in its place.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return bb.Wrap("start", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return bb.Wrap("start", dir, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() {
		return bb.E(bb.Permission, "start", dir, "the folder is not this user's").WithRemedy("give --listen-socket")
	}
	return nil
}

func devDir(dir string) (string, error) {
	if dir == "" {
		dir = defaultDevDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", bb.Wrap("start", dir, err)
	}
	return dir, bb.Wrap("start", dir, os.MkdirAll(dir, 0o700))
}

// wellKnownSocket is the default socket of clients: in the user's runtime
// folder, else for root in /run, else in a folder of the user's in the temporary one.
func wellKnownSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "forebay", "bbd.sock")
	}
	if os.Geteuid() == 0 {
		return "/run/forebay/bbd.sock"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("forebay-%d", os.Getuid()), "bbd.sock")
}

func logger(c config.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, bb.Wrap("start", c.Level, err)
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
}

// namespaceServer starts the embedded server, unless the configuration names another.
func namespaceServer(ctx context.Context, cfg config.Config, proofs *secrets, log *slog.Logger) (*embedded.Server, meta.Options, error) {
	options := meta.Options{Logger: log, Node: bb.NodeID(cfg.Name), Replicas: cfg.NATS.Replicas, Engine: meta.Engine(cfg.Namespace.Engine)}
	if cfg.NATS.Servers != "" {
		return clusterServer(ctx, cfg, proofs, options, log)
	}
	if cfg.NATS.URL != "" {
		options.URLs = strings.Split(cfg.NATS.URL, ",")
		options.Credentials = cfg.NATS.Credentials
		options.CA, options.Cert, options.Key = cfg.NATS.TLS.CA, cfg.NATS.TLS.Cert, cfg.NATS.TLS.Key
		return nil, options, nil
	}
	o := embedded.Options{Dir: natsDir(cfg), Listen: cfg.NATS.Embedded.Listen, Logger: log}
	if err := syncing(&o, cfg); err != nil {
		return nil, options, err
	}
	server, err := embedded.Start(ctx, o)
	if err != nil {
		return nil, options, err
	}
	options.InProcess = server
	options.SoleWriter = cfg.Cluster.Listen == ""
	return server, options, nil
}

// syncing returns when the embedded server's files are synced to the disk.
func syncing(o *embedded.Options, cfg config.Config) error {
	o.SyncInterval = cfg.NATS.Embedded.SyncInterval
	o.SyncAlways = o.SyncInterval == 0
	if o.SyncAlways {
		return nil
	}
	if o.BatchDir = batchDir(cfg.StateDir); cfg.Memory.Dir != "" {
		o.BatchDir = filepath.Join(cfg.Memory.Dir, "batches")
	}
	return folder.Private(o.BatchDir)
}

// batchDir is where the embedded server of a state folder has its batches in memory.
func batchDir(state string) string { return folder.InShm(state) + "-batches" }

func natsDir(cfg config.Config) string {
	if cfg.NATS.Embedded.Dir != "" {
		return cfg.NATS.Embedded.Dir
	}
	return filepath.Join(cfg.StateDir, "nats")
}

// adapt makes the daemon's configuration of the operator's.
func adapt(cfg config.Config, proofs *secrets, source meta.Options, log *slog.Logger) (bbd.Config, error) {
	if err := os.MkdirAll(cfg.StateDir, 0o711); err != nil {
		return bbd.Config{}, bb.Wrap("start", cfg.StateDir, err)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Listen.Socket), 0o755); err != nil {
		return bbd.Config{}, bb.Wrap("start", cfg.Listen.Socket, err)
	}
	limits := bbd.DefaultLimits()
	limits.Unproven, limits.Requests, limits.Bytes, limits.OpenFiles = cfg.Limits.Unproven, cfg.Limits.InFlight, cfg.Limits.RequestMemory.Bytes, cfg.Limits.OpenFiles
	limits.Sessions, limits.InFlight, limits.Waiters = cfg.Limits.Sessions, cfg.Limits.InFlightPerSession, cfg.Limits.Waiters
	limits.LeaseMin, limits.LeaseMax, limits.Inline = cfg.Limits.LeaseMin.Bytes, cfg.Limits.LeaseMax.Bytes, cfg.Limits.InlineThreshold.Bytes
	c := bbd.Config{
		Node: bb.NodeID(cfg.Name), Version: version, StateDir: cfg.StateDir,
		Socket: cfg.Listen.Socket, TCP: cfg.Listen.TCP, Admin: cfg.Listen.Admin, AdminSocket: cfg.Listen.AdminSocketPath(), Keys: proofs.keys, TLS: proofs.tls, Insecure: cfg.Insecure,
		Store: storeOptions(cfg), Meta: source, Limits: limits, ResumeGrace: 30 * time.Second, Log: log,
		Flush: bbd.FlushConfig{
			Idle: idle, Workers: cfg.Flush.Workers, DirtyAge: cfg.Flush.DirtyAge, Limit: cfg.Flush.Limit.Bytes, ClusterLimit: cfg.Flush.ClusterLimit.Bytes,
			High: float64(cfg.Flush.HighWatermark) / 100, Low: float64(cfg.Flush.LowWatermark) / 100,
			DrainOnStop: cfg.Flush.DrainOnStop, DrainTimeout: cfg.Flush.DrainTimeout,
		},
	}
	c.Fabric, c.FabricAnyPort = cfg.Listen.FabricAddress()
	if cfg.Fabric.OFI != config.OFIOff {
		c.OFI = fabric.OFI{Use: fabric.OFIUse(cfg.Fabric.OFI), Listen: cfg.Listen.OFI, Want: want(cfg.Fabric)}
	}
	c.Backing.S3.Endpoint, c.Backing.S3.Region, c.Backing.S3.PathStyle = cfg.S3.Endpoint, cfg.S3.Region, cfg.S3.PathStyle
	c.Backing.S3.CAFile, c.Backing.S3.CredentialsFile, c.Backing.S3.Logger = cfg.S3.CA, cfg.S3.CredentialsFile, log
	c.StoreRules = storeRules(cfg.Stores)
	c.Backing.POSIX.Logger = log
	c.Backing.POSIX.Layouts = layouts(cfg.Lustre.Stripes)
	return c, nil
}

// idle is the time after its close at which, without pressure, the flush of a file begins. A file
// that is renamed or removed within it is not flushed in vain, and a burst has the processors for
// itself. With 200 ms, time to durable was five times shorter and the application went on half as
// soon (docs/performance.md, rows 16 and 17).
const idle = time.Second

// storeRules keeps apart a missing list and an empty one.
func storeRules(stores []config.Store) []storerules.Rule {
	if stores == nil {
		return nil
	}
	rules := make([]storerules.Rule, len(stores))
	for i, s := range stores {
		rules[i] = storerules.Rule(s)
	}
	return rules
}

// layouts turns rows with the size below which they hold into rows with the size from which they
// do.
func layouts(stripes []config.Stripe) []lustre.Rule {
	rows := make([]lustre.Rule, 0, len(stripes))
	var from int64
	for _, s := range stripes {
		layout, err := lustre.Parse(s.Layout)
		if err != nil { // there is none, since the configuration is checked
			layout = lustre.Layout{{Count: s.Count, StripeSize: s.Size.Bytes}}
		}
		rows = append(rows, lustre.Rule{MinSize: from, Layout: layout})
		from = s.Below.Bytes
	}
	return rows
}

func storeOptions(cfg config.Config) store.Options {
	memory := cfg.Memory.Size.Of(totalMemory())
	o := store.Options{
		StateDir: cfg.StateDir, StateLocked: true, Mount: store.MountPolicy(cfg.Memory.Mount), ShmDir: cfg.Memory.Dir,
		MemoryBytes: memory, RegionBytes: min(cfg.Memory.RegionSize.Bytes, memory/store.Unit*store.Unit),
		PopulateThreads: cfg.Memory.PopulateThreads, DiskDir: cfg.Disk.Dir,
		Shares: cfg.Memory.Shares == config.SharesOn || cfg.Memory.Shares == config.SharesAuto && os.Geteuid() == 0,
	}
	if cfg.Disk.Dir != "" {
		o.DiskBytes = cfg.Disk.Size.Of(fileSystemSize(cfg.Disk.Dir))
	}
	return o
}

// checkMemory refuses a memory tier that is larger than the machine's memory (0: not known). It
// would be granted to clients, and exhaust the machine as they use it.
func checkMemory(size config.Size, machine int64) error {
	if machine == 0 || size.Of(machine) <= machine {
		return nil
	}
	return bb.E(bb.Invalid, "start", "memory.size", fmt.Sprintf("%v is more than the %s of memory that this machine has", size, humanSize(machine))).
		WithRemedy("set memory.size (--memory) to what the applications can spare, such as 25%")
}

func humanSize(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

func totalMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

func fileSystemSize(dir string) int64 {
	var info unix.Statfs_t
	if unix.Statfs(dir, &info) != nil {
		return 0
	}
	return int64(info.Blocks) * info.Bsize
}
