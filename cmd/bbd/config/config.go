// Package config is the daemon's configuration: its types, defaults, files, environment and flags,
// and the faults in it. It must never depend on the packages that it configures, since cmd/bbd hands
// each of them its own part.
package config

import "time"

// Config has all settings of a daemon. The table in fields.go
// documents every field, and docs/configuration.md is made of it.
type Config struct {
	Name      string
	StateDir  string
	Memory    Memory
	Disk      Disk
	Listen    Listen
	Fabric    Fabric
	Cluster   Cluster
	NATS      NATS
	Namespace Namespace
	Flush     Flush
	S3        S3
	Stores    []Store // nil: the safe stores; empty: object stores are for the daemon's owner alone
	Lustre    Lustre
	Limits    Limits
	Log       Log
	KeyFile   string
	TLS       TLS
	Insecure  bool
}

// Memory is the memory tier.
type Memory struct {
	Dir             string
	Size            Size // a share is one of the machine's memory
	Mount           Mount
	RegionSize      Size
	PopulateThreads int // 0: half as many as processors
	Shares          Shares
}

// Shares is whether memory is divided among users.
type Shares string

// The values of memory.shares.
const (
	SharesAuto Shares = "auto" // where the daemon serves several users
	SharesOn   Shares = "on"
	SharesOff  Shares = "off"
)

// Mount is whether the daemon mounts a tmpfs with huge pages for its regions.
type Mount string

// The values of memory.mount.
const (
	MountAuto    Mount = "auto"    // where the daemon may
	MountOff     Mount = "off"     // never
	MountRequire Mount = "require" // fail where it may not
)

// Disk is the disk tier. There is none if Dir is empty.
type Disk struct {
	Dir  string
	Size Size // a share is one of the file system's size
}

// Listen holds the addresses to listen on. An empty one is not listened on.
type Listen struct {
	Socket string // path of the unix socket
	TCP    string // host:port for clients elsewhere
	Fabric string // host:port for their one-sided transfers; empty: the port after TCP's; "off": none
	OFI    string // host:port of the connections beside libfabric transfers; empty: any port at Fabric's host
	Admin  string // host:port for HTTP

	// AdminSocket is the path of a unix socket for HTTP, for the daemon's owner. Empty means beside
	// Socket, and "off" none. See AdminSocketPath.
	AdminSocket string
}

// Fabric is when one-sided transfers go over libfabric, and by which of the machine's fabrics.
type Fabric struct {
	OFI      OFI
	Provider string // as libfabric names it; empty: any
	Domain   string // a device; empty: any
	Address  string // of this machine, or a prefix that holds one; empty: any
	Endpoint string // message, datagram; empty: any
}

// OFI is when libfabric is used.
type OFI string

// The values of fabric.ofi.
const (
	OFIAuto OFI = "auto" // where there is hardware, and bytes need not be encrypted
	OFIOn   OFI = "on"   // fail where it cannot be
	OFIOff  OFI = "off"  // never
)

// NATS is the place of the namespace: a URL, or the embedded server.
type NATS struct {
	URL         string // empty: embedded
	Servers     string // daemons of the cluster that run embedded servers; the same for all
	Replicas    int    // copies of the namespace; 0: as many as there are servers
	Credentials string
	TLS         TLS
	Embedded    Embedded
}

// TLS names the files of one side of TLS. There is none if CA is empty.
type TLS struct {
	CA   string
	Cert string
	Key  string
}

// Embedded is the embedded NATS server, which runs if no URL is given.
type Embedded struct {
	Dir          string // empty: nats in the state folder
	Listen       string // host:port; empty: reached in process only
	SyncInterval time.Duration
}

// Namespace is the way the namespaces of new buffers are kept.
type Namespace struct{ Engine Engine }

// Engine is how a namespace is kept.
type Engine string

// The values of namespace.engine.
const (
	EngineAuto    Engine = "auto"
	EngineBuckets Engine = "buckets"
	EngineLog     Engine = "log" // of daemons in a cluster, or of one that stands alone with its embedded server
)

// Flush is the way of dirty bytes to the backing store.
type Flush struct {
	Workers       int
	DirtyAge      time.Duration
	Limit         Size // bytes a second; 0: no limit
	ClusterLimit  Size // bytes a second of all daemons together; 0: no limit
	HighWatermark Percent
	LowWatermark  Percent
	DrainOnStop   bool
	DrainTimeout  time.Duration
}

// S3 is how to reach object stores.
type S3 struct {
	Endpoint        string // empty: the store of the region
	Region          string
	PathStyle       bool
	CA              string
	CredentialsFile string // empty: environment, the usual files, instance role
}

// Store allows users to use object stores through the daemon. The comment of Config has the meaning of a nil list.
type Store struct {
	Endpoints []string // patterns of scheme://host:port; nil: s3.endpoint
	Buckets   []string // patterns; nil: all
	Profiles  []string // patterns of profiles of the site's credentials; nil: default; empty: none
	CA        []string // patterns of certificate files that a URL may name; nil: none but s3.ca
	Users     []string // names, uids, @group, @gid; nil: all users
}

// Lustre is the striping of files where the backing store is Lustre.
type Lustre struct {
	Stripes []Stripe
}

// Stripe is the layout of files smaller than Below, which no earlier Stripe fits.
type Stripe struct {
	Below  Size   // 0: any size
	Count  int    // object storage targets; -1: all
	Size   Size   // bytes to a target before the next
	Layout string // in place of both: options of lfs setstripe
}

// Limits bounds what clients can make the daemon hold.
type Limits struct {
	Sessions           int
	Unproven           int
	InFlightPerSession int
	InFlight           int
	RequestMemory      Size
	OpenFiles          int
	LeaseMin           Size
	LeaseMax           Size
	InlineThreshold    Size
	Waiters            int
}

// Log is the level, form and place of the log.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}

// Default returns the configuration of a daemon without any setting.
func Default() Config {
	return Config{
		StateDir:  "/var/lib/forebay",
		Memory:    Memory{Size: Size{Share: 25}, Mount: MountAuto, RegionSize: Bytes(1 << 30), Shares: SharesAuto},
		Listen:    Listen{Socket: "/run/forebay/bbd.sock", Admin: "127.0.0.1:7480"},
		Fabric:    Fabric{OFI: OFIAuto},
		NATS:      NATS{Embedded: Embedded{SyncInterval: time.Second}},
		Namespace: Namespace{Engine: EngineAuto},
		Flush: Flush{
			Workers: 8, DirtyAge: 5 * time.Minute, HighWatermark: 80, LowWatermark: 50,
			DrainTimeout: 10 * time.Minute,
		},
		S3:     S3{Region: "us-east-1"},
		Lustre: Lustre{Stripes: []Stripe{}},
		Limits: Limits{
			Sessions: 1024, Unproven: 256, InFlightPerSession: 256, InFlight: 64 << 10, RequestMemory: Bytes(256 << 20), OpenFiles: 1 << 20, LeaseMin: Bytes(1 << 20), LeaseMax: Bytes(32 << 20),
			InlineThreshold: Bytes(16 << 10), Waiters: 4096,
		},
		Log: Log{Level: "info", Format: "text"},
	}
}

// Dev returns the configuration of `bbd --dev`: everything under one folder,
// loopback only, no rights needed.
func Dev(dir string) Config {
	c := Default()
	c.Name = "dev"
	c.StateDir = dir
	c.Listen = Listen{Socket: dir + "/bbd.sock", Admin: "127.0.0.1:0"}
	return c
}
