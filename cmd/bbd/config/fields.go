package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A field describes one value of Config. The table below is the source of the file's keys, the environment's names, the
// flags and the reference page.
type field struct {
	key   string // in the file, sections separated by dots
	usage string
	value func(*Config) any // a pointer to it
}

// env returns the name of the field's environment variable.
func (f field) env() string {
	return "FOREBAY_" + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
}

// flag returns the name of the field's flag, without dashes.
func (f field) flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(f.key)
}

// sections describes each section, in the order of the fields.
var sections = []struct{ key, usage string }{
	{"", "The node."},
	{"memory", "The memory tier: where bursts land."},
	{"disk", "The disk tier: where full segments are spilled when memory is used up. None if dir is empty."},
	{"listen", "Addresses. An empty one is not listened on. One beyond loopback needs key_file, or tls."},
	{"fabric", "One-sided transfers over libfabric (InfiniBand, RoCE and others), beside those over TCP at listen.fabric: for clients and daemons that have it too. Needs bbd-ofi. bbd fabric list shows the offers, and the one that would be used."},
	{"tls", "Mutual TLS for listen.tcp and listen.fabric, and for this daemon's requests to others. With it, nothing else is accepted there. bbctl cluster init makes the files. SIGHUP reads them again."},
	{"cluster", "How daemons find each other. Without listen, this one is alone."},
	{"nats", "Where the namespace is kept: on NATS servers at url, or in the embedded server if url is empty."},
	{"namespace", "How the directories and names of a buffer are kept on the NATS server."},
	{"flush", "How dirty bytes reach the backing store."},
	{"s3", "How object stores are reached."},
	{"lustre", "Layout of files on Lustre; has no effect on other file systems."},
	{"limits", "Bounds on what clients can make the daemon hold."},
	{"log", "Log lines, on standard error."},
}

var fields = []field{
	{"name", "The node's name in the namespace and to its peers. Empty: the host name.", func(c *Config) any { return &c.Name }},
	{"state_dir", "Folder for the daemon's files beside regions: its identity, locks, the embedded NATS server.", func(c *Config) any { return &c.StateDir }},
	{"key_file", "File with the cluster key. Remote clients and peers prove that they have it. Readable by the daemon's user only. While the key is changed, it holds several, one a line: the first encrypts, all are accepted. SIGHUP reads it again.", func(c *Config) any { return &c.KeyFile }},
	{"insecure", "Listen beyond loopback without a cluster key or certificates. Anybody who reaches the node can then read and write everything.", func(c *Config) any { return &c.Insecure }},

	{"stores", "Which object stores users may have the daemon use, and with whose credentials: a list of {endpoints, buckets, profiles, ca, users}, of which one has to fit. Each is a list of patterns (*, ?, [a-z]); users are names (as getent lists them), uids, @group or @gid. Left out, they mean: endpoints s3.endpoint, buckets all, profiles default (of s3.credentials_file; []: users bring credentials of their own), ca none but s3.ca, users everybody. http:// is used only where endpoints name it. Without the list: s3.endpoint with the site's credentials, and every https:// endpoint with the user's own (credentials=/path in the URL). Root and the daemon's user may use everything. See security.md.", func(c *Config) any { return &c.Stores }},

	{"memory.dir", "Folder for the memory tier's regions, on a tmpfs. Empty: a folder in /dev/shm. It is not used for them where the daemon mounts a tmpfs of its own below state_dir, as root does with memory.mount auto: then set memory.mount to off.", func(c *Config) any { return &c.Memory.Dir }},
	{"memory.size", "Size of the memory tier: bytes, or a share of the machine's memory.", func(c *Config) any { return &c.Memory.Size }},
	{"memory.mount", "Mount a tmpfs with huge pages, which fills ten times as fast: auto (where the daemon may), off, or require (fail where it may not).", func(c *Config) any { return &c.Memory.Mount }},
	{"memory.region_size", "Size of one region, the unit of registration: 64MiB to 1GiB, a multiple of 2MiB.", func(c *Config) any { return &c.Memory.RegionSize }},
	{"memory.shares", "Divide memory among users, in whole regions: auto (where the daemon runs as root, and so serves several), on, or off. With 3 regions or more one stays free for a user without any, with 8 or more another one for root.", func(c *Config) any { return &c.Memory.Shares }},
	{"memory.populate_threads", "Threads that touch fresh memory in the background. 0: half as many as processors.", func(c *Config) any { return &c.Memory.PopulateThreads }},

	{"disk.dir", "Folder for the disk tier's regions, on a local disk. Empty: no disk tier.", func(c *Config) any { return &c.Disk.Dir }},
	{"disk.size", "Size of the disk tier: bytes, or a share of the file system's size.", func(c *Config) any { return &c.Disk.Size }},

	{"listen.socket", "Unix socket for clients on this node. The kernel identifies its users.", func(c *Config) any { return &c.Listen.Socket }},
	{"listen.tcp", "host:port for clients elsewhere.", func(c *Config) any { return &c.Listen.TCP }},
	{"listen.fabric", "host:port at which clients elsewhere write and read the memory itself. Empty: the port after listen.tcp's, or any if that one is taken; off: none, bytes travel in messages.", func(c *Config) any { return &c.Listen.Fabric }},
	{"listen.ofi", "host:port of the TCP connections that accompany transfers over libfabric. Empty: any port at the host of listen.fabric.", func(c *Config) any { return &c.Listen.OFI }},
	{"listen.admin", "host:port for HTTP, for everybody who reaches it: /metrics, /healthz, /readyz.", func(c *Config) any { return &c.Listen.Admin }},
	{"listen.admin_socket", "Unix socket for HTTP, for root and the daemon's user alone: also /status and /debug/pprof/. Empty: beside listen.socket (bbd.sock: bbd-admin.sock); off: none.", func(c *Config) any { return &c.Listen.AdminSocket }},

	{"fabric.ofi", "Whether libfabric is used: auto (where hardware moves the bytes, and tls does not require their encryption), on (whatever there is, unencrypted; fail where there is nothing), or off.", func(c *Config) any { return &c.Fabric.OFI }},
	{"fabric.provider", "libfabric's provider, such as verbs. Empty: the best.", func(c *Config) any { return &c.Fabric.Provider }},
	{"fabric.domain", "Device, such as mlx5_0. Empty: the best.", func(c *Config) any { return &c.Fabric.Domain }},
	{"fabric.address", "Address of this machine on the fabric's network, or a prefix such as 10.1.0.0/16 that holds it. Empty: any.", func(c *Config) any { return &c.Fabric.Address }},
	{"fabric.endpoint", "Kind of endpoints: message or datagram. Empty: the best.", func(c *Config) any { return &c.Fabric.Endpoint }},

	{"tls.ca", "File with the certificates that sign those of daemons and clients. Empty: no TLS.", func(c *Config) any { return &c.TLS.CA }},
	{"tls.cert", "File with this daemon's certificate, which has the URI forebay:daemon among its names.", func(c *Config) any { return &c.TLS.Cert }},
	{"tls.key", "File with the key of that certificate. Readable by the daemon's user only.", func(c *Config) any { return &c.TLS.Key }},

	{"cluster.listen", "host:port of gossip, TCP and UDP, such as 0.0.0.0:7483. Needs key_file, and listen.tcp for requests between daemons.", func(c *Config) any { return &c.Cluster.Listen }},
	{"cluster.advertise", "Host name or address that other nodes reach this one at. Empty: the address of the interface that leads out.", func(c *Config) any { return &c.Cluster.Advertise }},
	{"cluster.join", "Where any member may be: host:port,host:port; dns:name:port; file:/path; slurm:NODELIST:port. Empty: wait for others to join.", func(c *Config) any { return &c.Cluster.Join }},
	{"cluster.wan", "Gossip at the pace of links with delays of tens of milliseconds.", func(c *Config) any { return &c.Cluster.WAN }},

	{"nats.servers", "Daemons of the cluster that run the embedded servers, 1, 3 or 5 host names or addresses separated by commas, each with a port if that is not 4222 (the servers talk to each other at the port 2000 above). The same in every daemon's configuration.", func(c *Config) any { return &c.NATS.Servers }},
	{"nats.replicas", "Servers that keep a copy of the namespace: 1, 3 or 5. 0: all of nats.servers, or 1.", func(c *Config) any { return &c.NATS.Replicas }},
	{"nats.url", "URLs of NATS servers, separated by commas (nats://, tls://, ws://, wss://), without credentials. Empty: the embedded server.", func(c *Config) any { return &c.NATS.URL }},
	{"nats.credentials", "NATS credentials file (.creds).", func(c *Config) any { return &c.NATS.Credentials }},
	{"nats.tls.ca", "File with the certificates that sign the servers'. Empty: the system's.", func(c *Config) any { return &c.NATS.TLS.CA }},
	{"nats.tls.cert", "File with the client's certificate.", func(c *Config) any { return &c.NATS.TLS.Cert }},
	{"nats.tls.key", "File with the key of the client's certificate.", func(c *Config) any { return &c.NATS.TLS.Key }},
	{"nats.embedded.dir", "Folder of the embedded server. Empty: nats below state_dir.", func(c *Config) any { return &c.NATS.Embedded.Dir }},
	{"nats.embedded.listen", "host:port on which the embedded server takes other NATS clients. Empty: none.", func(c *Config) any { return &c.NATS.Embedded.Listen }},
	{"nats.embedded.sync_interval", "How often the embedded server forces its files to disk. 0s: after every change. A crash of the machine, not of the daemon, can undo younger changes, and leave the last change of several entries half done.", func(c *Config) any { return &c.NATS.Embedded.SyncInterval }},

	{"namespace.engine", "How names are kept, of buffers that are made from now on. One that exists keeps its own way. log: a log, and a table of all names in the memory of one daemon, which owns the log. Other daemons of the cluster send their calls to that one, and one of them owns the log when it ends. buckets: a key-value bucket with a key for each name. auto: log, but buckets while a daemon in the cluster is of a release that cannot read logs, and of a daemon in no cluster that uses NATS servers elsewhere. See operations.md before an upgrade.", func(c *Config) any { return &c.Namespace.Engine }},

	{"flush.workers", "Files flushed at the same time. Of at most 64 KiB, 24 to a directory count as one, or 8 to S3.", func(c *Config) any { return &c.Flush.Workers }},
	{"flush.dirty_age", "Age at which a dirty byte is flushed, even if there are reasons to wait.", func(c *Config) any { return &c.Flush.DirtyAge }},
	{"flush.limit", "Bytes a second to all stores together. 0: no limit.", func(c *Config) any { return &c.Flush.Limit }},
	{"flush.cluster_limit", "Bytes a second to all stores of all daemons of the cluster together, the same in each one's configuration. 0: no limit.", func(c *Config) any { return &c.Flush.ClusterLimit }},
	{"flush.high_watermark", "Share of the tiers in use above which everything dirty is flushed and clean segments are evicted.", func(c *Config) any { return &c.Flush.HighWatermark }},
	{"flush.low_watermark", "Share of the tiers in use down to which eviction goes.", func(c *Config) any { return &c.Flush.LowWatermark }},
	{"flush.drain_on_stop", "Drain everything before the daemon stops. Without it, regions keep dirty bytes until the next start.", func(c *Config) any { return &c.Flush.DrainOnStop }},
	{"flush.drain_timeout", "How long a stop waits for that drain.", func(c *Config) any { return &c.Flush.DrainTimeout }},

	{"s3.endpoint", "URL of the store, such as https://s3.example.org:9000. Empty: the public store of the region.", func(c *Config) any { return &c.S3.Endpoint }},
	{"s3.region", "Region to sign requests for.", func(c *Config) any { return &c.S3.Region }},
	{"s3.path_style", "Address buckets as a path instead of a host name, as many stores on premises require.", func(c *Config) any { return &c.S3.PathStyle }},
	{"s3.ca", "File with the certificates that sign the store's. Empty: the system's.", func(c *Config) any { return &c.S3.CA }},
	{"s3.credentials_file", "Shared credentials file. Empty: AWS_* in the environment, ~/.aws/credentials, instance role, in that order.", func(c *Config) any { return &c.S3.CredentialsFile }},

	{"lustre.stripes", "Layouts of files on Lustre from 1 MiB on, by file size, smallest first; none: each file has the layout of its directory. Each has below (bytes; absent in the last: any size), count of targets (-1: all) and size (bytes to a target before the next), or in place of both layout (options of lfs setstripe: -E, -L mdt, -c, -S, -p). A buffer overrides it by its backing's layout.", func(c *Config) any { return &c.Lustre.Stripes }},

	{"limits.sessions", "Sessions of users at the same time. A user has as many of them as are left for all others: alone half, of two each a third. Root, the daemon's user and other daemons always get in.", func(c *Config) any { return &c.Limits.Sessions }},
	{"limits.unproven", "Connections over TCP that are not authenticated yet. One more takes the place of the oldest.", func(c *Config) any { return &c.Limits.Unproven }},
	{"limits.in_flight_per_session", "Requests of one session that have no answer yet.", func(c *Config) any { return &c.Limits.InFlightPerSession }},
	{"limits.in_flight", "Requests of all users that have no answer yet. Each user has a share, as of sessions. Beyond it the kind of error is busy.", func(c *Config) any { return &c.Limits.InFlight }},
	{"limits.request_memory", "Memory for the data of users' requests until it is stored: 16MiB or more. Each user has a share, as of sessions. Beyond it nothing more is read from the user until there is some.", func(c *Config) any { return &c.Limits.RequestMemory }},
	{"limits.open_files", "Files that all users have open. Each user has a share, as of sessions. Beyond it the kind of error is busy. A client that creates a file does not wait for the answer: it gets the error from Sync or Close at the latest.", func(c *Config) any { return &c.Limits.OpenFiles }},
	{"limits.lease_min", "Smallest lease: 1MiB to lease_max.", func(c *Config) any { return &c.Limits.LeaseMin }},
	{"limits.lease_max", "Largest lease, to which leases grow with use: at most 64MiB.", func(c *Config) any { return &c.Limits.LeaseMax }},
	{"limits.inline_threshold", "Reads of up to so many bytes are answered with the bytes themselves: at most 4MiB.", func(c *Config) any { return &c.Limits.InlineThreshold }},
	{"limits.waiters", "Writers of all users that wait for a lease at the same time. Each user has a share, as of sessions. Beyond it the kind of error is busy.", func(c *Config) any { return &c.Limits.Waiters }},

	{"log.level", "debug, info, warn or error.", func(c *Config) any { return &c.Log.Level }},
	{"log.format", "text or json.", func(c *Config) any { return &c.Log.Format }},
}

// parse sets the value behind a field's pointer from the text in a file, a variable or a
// flag. On an error it leaves the value alone.
func parse(target, from any) error {
	switch t := target.(type) {
	case *[]Stripe:
		return parseStripes(t, from)
	case *[]Store:
		return parseStores(t, from)
	}
	switch from.(type) {
	case []any, map[string]any:
		return fmt.Errorf("it is not a single value")
	case nil:
		from = ""
	}
	text := strings.TrimSpace(fmt.Sprint(from))
	switch t := target.(type) {
	case *string:
		*t = text
		return nil
	case *Shares:
		*t = Shares(text)
		return nil
	case *Mount:
		*t = Mount(text)
		return nil
	case *OFI:
		*t = OFI(text)
		return nil
	case *Engine:
		*t = Engine(text)
		return nil
	case *bool:
		return into(t, text, strconv.ParseBool, "it is neither true nor false")
	case *int:
		return into(t, text, strconv.Atoi, "it is not a whole number")
	case *time.Duration:
		return into(t, text, time.ParseDuration, "it is not a duration such as 90s or 5m")
	case *Percent:
		return into(t, text, ParsePercent, "it is not a share from 1% to 100%")
	case *Size:
		return into(t, text, ParseSize, "it is not a size such as 64GiB")
	default:
		return fmt.Errorf("values of type %T cannot be read", target)
	}
}

func into[T any](target *T, text string, read func(string) (T, error), why string) error {
	v, err := read(text)
	if err != nil {
		return fmt.Errorf("%s", why)
	}
	*target = v
	return nil
}

// parseStripes reads a list of {below, count, size} and {below, layout}, or its text in YAML.
func parseStripes(target *[]Stripe, from any) error {
	if text, ok := from.(string); ok {
		if err := yaml.Unmarshal([]byte(text), &from); err != nil {
			return fmt.Errorf("it is not a list of stripes")
		}
	}
	list, ok := from.([]any)
	if !ok {
		return fmt.Errorf("it is not a list of stripes")
	}
	stripes := make([]Stripe, len(list))
	for i, item := range list {
		values, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("stripe %d is neither {below, count, size} nor {below, layout}", i+1)
		}
		for key, v := range values {
			var err error
			switch key {
			case "below":
				err = parse(&stripes[i].Below, v)
			case "count":
				err = parse(&stripes[i].Count, v)
			case "size":
				err = parse(&stripes[i].Size, v)
			case "layout":
				err = parse(&stripes[i].Layout, v)
			default:
				err = fmt.Errorf("the key is unknown")
			}
			if err != nil {
				return fmt.Errorf("%s of stripe %d: %w", key, i+1, err)
			}
		}
	}
	*target = stripes
	return nil
}

// format writes the value behind a field's pointer so that parse reads it again.
// It is YAML on one line.
func format(target any) string {
	switch t := target.(type) {
	case *string:
		return quote(*t)
	case *[]Store:
		return formatStores(*t)
	case *[]Stripe:
		items := make([]string, len(*t))
		for i, s := range *t {
			below := ""
			if s.Below != (Size{}) {
				below = "below: " + s.Below.String() + ", "
			}
			if s.Layout != "" {
				items[i] = fmt.Sprintf("{%slayout: %s}", below, quote(s.Layout))
				continue
			}
			items[i] = fmt.Sprintf("{%scount: %d, size: %s}", below, s.Count, s.Size)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case *Shares:
		return quote(string(*t))
	case *Mount:
		return quote(string(*t))
	case *OFI:
		return quote(string(*t))
	case *Engine:
		return quote(string(*t))
	case *bool:
		return strconv.FormatBool(*t)
	case *int:
		return strconv.Itoa(*t)
	case *time.Duration:
		return formatDuration(*t)
	case *Percent:
		return t.String()
	case *Size:
		return t.String()
	default:
		return fmt.Sprint(target)
	}
}

// quote writes text as YAML: plain where that reads back as the same text.
func quote(text string) string {
	if text == "" {
		return `""`
	}
	var back any
	if yaml.Unmarshal([]byte(text), &back) == nil && back == any(text) {
		return text
	}
	return strconv.Quote(text)
}

// formatDuration leaves out the zero minutes and seconds that Duration.String adds.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
