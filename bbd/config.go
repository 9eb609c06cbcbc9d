package bbd

import (
	"cmp"
	"log/slog"
	"time"

	"forebay/bbd/backings"
	"forebay/bbd/cluster"
	"forebay/bbd/fabric"
	"forebay/bbd/peer"
	"forebay/bbd/startup"
	"forebay/bbd/store"
	"forebay/bbd/storerules"
	"forebay/flusher/backing/open"
	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
	"forebay/meta"
)

// Config is the configuration of a daemon. cmd/bbd makes it from files, environment and flags.
// There are no other settings.
type Config struct {
	Node     bb.NodeID
	Version  string
	StateDir string // the state that must survive a restart and is not bytes of files

	Socket string // unix socket for clients on this node
	TCP    string // host:port for clients elsewhere; "" for none
	Fabric string // host:port for their one-sided transfers; "" for none, so that their bytes travel in messages
	Admin  string // host:port of the admin HTTP server; "" for none
	// AdminSocket is a unix socket on which the admin server serves root and the daemon's user. ""
	// means none. The admin server at Admin serves every client, and only metrics and readiness.
	AdminSocket string
	Insecure    bool // listen beyond loopback, and over TCP, where clients need no proof

	// Keys are shared keys: TCP clients must prove that they hold one, or show a token or a
	// certificate. If TLS is not nil, TCP and the fabric accept nothing else.
	Keys *wire.Keyring
	TLS  *clustercert.Credentials

	FabricAnyPort bool       // another port will do for Fabric, if that one is taken
	OFI           fabric.OFI // one-sided transfers over libfabric, beside those over TCP
	// Members lists the other daemons. nil means that this one is alone.
	Members cluster.Members

	Store   store.Options
	Meta    meta.Options
	Backing open.Options
	// StoreRules limit the object stores that users may have the daemon use. nil means
	// storerules.Default. They do not hold for root and the daemon's user.
	StoreRules []storerules.Rule
	Flush      FlushConfig
	Lustre     backings.Lustre
	Limits     Limits

	ResumeGrace time.Duration // how long a file waits for a writer that lost its daemon

	Log *slog.Logger
	// Steps names in the log the waits of the start. It is the caller's, which may have begun it
	// before and ends it. Nil: New makes one, which ends when New returns.
	Steps *startup.Steps
}

// FlushConfig is the configuration of flushing dirty data to the stores.
type FlushConfig struct {
	Workers      int
	DirtyAge     time.Duration    // oldest a dirty byte may get before its flush begins
	Idle         time.Duration    // how long a file is left alone, in case it is removed or renamed
	Backoff      [2]time.Duration // shortest and longest wait after a failure; 0: 1 s, 1 min
	Limit        int64            // bytes a second to and from all stores; 0: none
	ClusterLimit int64            // bytes a second of all daemons of the cluster together; 0: none
	High, Low    float64          // share of memory that may be in use before room is made, and down to which
	DrainOnStop  bool
	DrainTimeout time.Duration
}

// Limits bound the resources that clients may make the daemon hold.
type Limits struct {
	Sessions  int   // of users other than the daemon's owner; each has a share (package share)
	Unproven  int   // connections over TCP whose client has not proved its identity
	InFlight  int   // requests of one session
	Requests  int   // of all users' sessions, in flight
	Bytes     int64 // that requests of users carry, and messages beyond the usual size
	OpenFiles int   // of all users' sessions
	Handles   int   // open files of one session
	Leases    int   // of one session
	Waiters   int   // writers of users that wait for room
	LeaseMin  int64 // bytes
	LeaseMax  int64
	Inline    int64 // bytes; reads of at most this size are answered with data
	Handshake time.Duration
	Silence   time.Duration // of another daemon, after which no request waits for it any more; 0: 16 s
	Reap      time.Duration // how often transactions are looked after; 0: 5 s
}

// DefaultLimits are the limits of a daemon whose configuration has none.
func DefaultLimits() Limits {
	return Limits{
		Sessions: 4096, Unproven: 256, InFlight: 1024, Requests: 64 << 10, Bytes: 256 << 20, OpenFiles: 1 << 20, Handles: 65536, Leases: 256, Waiters: 65536,
		LeaseMin: 1 << 20, LeaseMax: 32 << 20, Inline: 32 << 10, Handshake: 10 * time.Second,
	}
}

// silence is how long another daemon may send nothing.
func (c *Config) silence() time.Duration { return cmp.Or(c.Limits.Silence, peer.Silence) }
