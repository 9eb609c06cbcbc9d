package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/wire"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Key    string
	Value  string // without credentials
	Why    string
	Remedy string
}

// String returns the problem on one line.
func (p Problem) String() string {
	text := p.Key
	if p.Value != "" {
		text += ": " + strconv.Quote(p.Value)
	}
	text += ": " + p.Why
	if p.Remedy != "" {
		text += " (" + p.Remedy + ")"
	}
	return text
}

// Problems are all that is wrong with a configuration.
type Problems []Problem

// Error returns all problems on one line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "; ")
}

// userinfo finds the credentials in a URL, whether or not it can be parsed.
var userinfo = regexp.MustCompile(`(//)[^/@\s]+@`)

func (p *Problems) add(key, value, why, remedy string) {
	hide := func(s string) string { return userinfo.ReplaceAllString(s, "${1}***@") }
	*p = append(*p, Problem{Key: key, Value: hide(value), Why: hide(why), Remedy: remedy})
}

// check adds a problem unless the value is right.
func (p *Problems) check(right bool, key string, value any, why, remedy string) {
	if !right {
		p.add(key, fmt.Sprint(value), why, remedy)
	}
}

// Validate reports every problem that the values themselves show. It does no I/O.
func (c *Config) Validate() Problems {
	var p Problems
	p.check(c.Name != "" && len(c.Name) <= 255 && !strings.ContainsAny(c.Name, "/ \t\n"), "name", c.Name,
		"it is not a name of 1 to 255 bytes without spaces and slashes", "such as the host name")
	absolute(&p, "state_dir", c.StateDir, true)
	absolute(&p, "key_file", c.KeyFile, false)
	absolute(&p, "tls.ca", c.TLS.CA, false)
	absolute(&p, "tls.cert", c.TLS.Cert, false)
	absolute(&p, "tls.key", c.TLS.Key, false)
	all := c.TLS.CA != "" && c.TLS.Cert != "" && c.TLS.Key != ""
	p.check(all || c.TLS == TLS{}, "tls.ca", c.TLS.CA, "a daemon's certificate, its key and the authority's go together", "set tls.ca, tls.cert and tls.key, or none of them")
	c.validateTiers(&p)
	c.validateListen(&p)
	c.validateCluster(&p)
	c.validateNATS(&p)
	c.validateFlush(&p)
	c.validateS3(&p)
	c.validateStores(&p)
	c.validateLustre(&p)
	c.validateLimits(&p)
	oneOf(&p, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(&p, "log.format", c.Log.Format, "text", "json")
	return p
}

func (c *Config) validateTiers(p *Problems) {
	m, d := &c.Memory, &c.Disk
	absolute(p, "memory.dir", m.Dir, false)
	absolute(p, "disk.dir", d.Dir, false)
	oneOf(p, "memory.mount", string(m.Mount), string(MountAuto), string(MountOff), string(MountRequire))
	oneOf(p, "memory.shares", string(m.Shares), string(SharesAuto), string(SharesOn), string(SharesOff))
	p.check(m.Size.Share <= 90, "memory.size", m.Size, "the operating system and the applications need memory too", "at most 90%")
	p.check(m.Size.Share > 0 || m.Size.Bytes >= 64<<20, "memory.size", m.Size, "it is too small to be of use", "at least 64MiB")
	within(p, "memory.region_size", m.RegionSize, 64<<20, 1<<30)
	p.check(m.RegionSize.Bytes%(2<<20) == 0, "memory.region_size", m.RegionSize, "it does not consist of huge pages", "a multiple of 2MiB")
	between(p, "memory.populate_threads", m.PopulateThreads, 0, 64)
	set := d.Size != Size{}
	p.check(d.Dir == "" || set, "disk.size", d.Size, "the disk tier has a folder but no size", "set disk.size, or leave disk.dir empty")
	p.check(d.Dir != "" || !set, "disk.dir", d.Dir, "the disk tier has a size but no folder", "set disk.dir, or disk.size to 0")
	p.check(!set || d.Size.Share > 0 || d.Size.Bytes >= 64<<20, "disk.size", d.Size, "it is too small to be of use", "at least 64MiB")
}

func (c *Config) validateListen(p *Problems) {
	l := &c.Listen
	absolute(p, "listen.socket", l.Socket, false)
	p.check(len(l.Socket) <= maxSocketPath, "listen.socket", l.Socket, "the path of a unix socket has at most 107 bytes", "use a shorter path")
	if l.AdminSocket != AdminSocketOff {
		absolute(p, "listen.admin_socket", l.AdminSocket, false)
	}
	p.check(len(l.AdminSocket) <= maxSocketPath, "listen.admin_socket", l.AdminSocket, "the path of a unix socket has at most 107 bytes", "use a shorter path")
	p.check(l.AdminSocket == "" || l.AdminSocket != l.Socket, "listen.admin_socket", l.AdminSocket, "listen.socket is the same path", "give each its own path")
	p.check(l.Socket != "" || l.TCP != "", "listen.socket", "", "no client can reach the daemon", "set listen.socket or listen.tcp")
	c.address(p, "listen.tcp", l.TCP, withCertificates)
	fabric := l.Fabric
	if fabric == FabricOff {
		fabric = ""
	}
	c.address(p, "listen.fabric", fabric, withCertificates)
	p.check(fabric == "" || l.TCP != "", "listen.fabric", fabric, "only clients that come over TCP use it", "set listen.tcp, or leave it empty")
	c.address(p, "listen.ofi", l.OFI, withCertificates)
	c.validateFabric(p)
	c.address(p, "listen.admin", l.Admin, public)
	seen := map[string]string{}
	for _, a := range []struct{ key, address string }{
		{"listen.tcp", l.TCP},
		{"listen.fabric", fabric},
		{"listen.ofi", l.OFI},
		{"listen.admin", l.Admin},
		{"cluster.listen", c.Cluster.Listen},
		{"nats.embedded.listen", c.NATS.Embedded.Listen},
	} {
		other, twice := seen[a.address]
		p.check(!twice || strings.HasSuffix(a.address, ":0"), a.key, a.address, other+" is the same address", "give each its own port")
		if a.address != "" {
			seen[a.address] = a.key
		}
	}
}

func (c *Config) validateFabric(p *Problems) {
	f := &c.Fabric
	oneOf(p, "fabric.ofi", string(f.OFI), string(OFIAuto), string(OFIOn), string(OFIOff))
	oneOf(p, "fabric.endpoint", f.Endpoint, "", "message", "datagram")
	address, _ := c.Listen.FabricAddress()
	p.check(f.OFI != OFIOn || address != "", "fabric.ofi", string(f.OFI), "there are no one-sided transfers", "set listen.tcp, and listen.fabric to something else than off")
	if f.Address != "" {
		_, prefix := netip.ParsePrefix(f.Address)
		_, single := netip.ParseAddr(f.Address)
		p.check(prefix == nil || single == nil, "fabric.address", f.Address, "it is neither an IP address nor a prefix", "such as 10.1.0.0/16")
	}
}

// guarded returns the guard of an address beyond loopback, unless the operator
// insists that there is none.
type guarded int

const (
	withKey          guarded = iota // the cluster key alone
	withCertificates                // the cluster key or certificates
	withNothing                     // every caller is admitted
	public                          // it serves data for all callers
)

// address checks a host:port to listen on and that it is loopback, unless it is
// guarded or the operator insists.
func (c *Config) address(p *Problems, key, address string, with guarded) {
	if address == "" {
		return
	}
	_, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n > 65535 {
		p.add(key, address, "it is not host:port", "such as 127.0.0.1:7480")
		return
	}
	switch {
	case !beyondLoopback(address) || c.Insecure || with == public:
	case with == withNothing:
		p.add(key, address, "it is beyond loopback and has no authentication", "listen on 127.0.0.1, or set insecure: true")
	case with == withKey:
		p.check(c.KeyFile != "", key, address, "it is beyond loopback and there is no cluster key",
			"set key_file, listen on 127.0.0.1, or set insecure: true")
	case with == withCertificates:
		p.check(c.KeyFile != "" || c.TLS.CA != "", key, address, "it is beyond loopback and there is no cluster key",
			"set key_file or tls.*, listen on 127.0.0.1, or set insecure: true")
	}
}

// beyondLoopback reports whether others than this node may reach host:port.
func beyondLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback())
}

func (c *Config) validateNATS(p *Problems) {
	n := &c.NATS
	for server := range strings.SplitSeq(n.URL, ",") {
		if n.URL == "" {
			break
		}
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			p.add("nats.url", server, "it is not the URL of a NATS server", "such as nats://host:4222")
			continue
		}
		p.check(u.User == nil, "nats.url", server, "it holds credentials, which would show in logs", "put them into a file and name it in nats.credentials")
	}
	absolute(p, "nats.credentials", n.Credentials, false)
	absolute(p, "nats.tls.ca", n.TLS.CA, false)
	absolute(p, "nats.tls.cert", n.TLS.Cert, false)
	absolute(p, "nats.tls.key", n.TLS.Key, false)
	p.check((n.TLS.Cert == "") == (n.TLS.Key == ""), "nats.tls.cert", n.TLS.Cert, "a certificate and its key go together", "set both nats.tls.cert and nats.tls.key, or neither")
	e := &n.Embedded
	absolute(p, "nats.embedded.dir", e.Dir, false)
	p.check(n.URL == "" || e.Dir == "" && e.Listen == "", "nats.embedded", "", "nats.url is set, so the embedded server does not run", "set one or the other")
	c.address(p, "nats.embedded.listen", e.Listen, withNothing)
	engine := c.Namespace.Engine
	oneOf(p, "namespace.engine", string(engine), string(EngineAuto), string(EngineBuckets), string(EngineLog))
	served := c.Cluster.Listen != "" || n.Servers == "" && n.URL == ""
	p.check(engine != EngineLog || served, "namespace.engine", engine, "a daemon in no cluster serves a log only with its embedded server", "set cluster.listen, or set it to auto or buckets, or leave nats.servers and nats.url empty")
	p.check(e.SyncInterval >= 0 && e.SyncInterval <= time.Hour, "nats.embedded.sync_interval", e.SyncInterval, "it is out of range", "0s to 1h")
}

func (c *Config) validateFlush(p *Problems) {
	f := &c.Flush
	between(p, "flush.workers", f.Workers, 1, 1024)
	p.check(f.DirtyAge >= time.Second && f.DirtyAge <= 24*time.Hour, "flush.dirty_age", f.DirtyAge, "it is out of range", "1s to 24h")
	p.check(f.ClusterLimit.Share == 0, "flush.cluster_limit", f.ClusterLimit, "a rate is not a share", "bytes a second, such as 5GB; 0 for no limit")
	p.check(f.Limit.Share == 0, "flush.limit", f.Limit, "a rate is not a share", "bytes a second, such as 500MB; 0 for no limit")
	p.check(f.LowWatermark < f.HighWatermark, "flush.low_watermark", f.LowWatermark, "it is not below flush.high_watermark", "such as 50% and 80%")
	p.check(f.DrainTimeout > 0, "flush.drain_timeout", f.DrainTimeout, "a drain takes time", "such as 10m")
}

func (c *Config) validateS3(p *Problems) {
	if s := &c.S3; s.Endpoint != "" {
		u, err := url.Parse(s.Endpoint)
		good := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
		p.check(good, "s3.endpoint", s.Endpoint, "it is not the URL of a store", "such as https://s3.example.org:9000, without bucket")
		p.check(!good || u.User == nil, "s3.endpoint", s.Endpoint, "it holds credentials, which would show in logs", "put them into a file and name it in s3.credentials_file")
	}
	p.check(c.S3.Region != "", "s3.region", "", "requests cannot be signed without a region", "us-east-1 serves most stores on premises")
	absolute(p, "s3.ca", c.S3.CA, false)
	absolute(p, "s3.credentials_file", c.S3.CredentialsFile, false)
}

func (c *Config) validateLustre(p *Problems) {
	const key = "lustre.stripes"
	last := int64(0)
	for i, s := range c.Lustre.Stripes {
		name := fmt.Sprintf("%s[%d]", key, i)
		if s.Layout != "" {
			_, err := lustre.Parse(s.Layout)
			p.check(err == nil, name+".layout", s.Layout, fmt.Sprint(err), "such as -E 64M -c 1 -E -1 -c 8 -p flash")
			p.check(s.Count == 0 && s.Size == Size{}, name+".layout", s.Layout, "it stands beside count or size", "write -c and -S in layout")
			s.Count, s.Size.Bytes = 1, 1<<20
		}
		p.check(s.Count == -1 || s.Count >= 1 && s.Count <= 2000, name+".count", s.Count, "it is out of range", "1 to 2000, or -1 for all")
		p.check(s.Size.Bytes > 0 && s.Size.Bytes < 4<<30 && s.Size.Bytes%(64<<10) == 0, name+".size", s.Size, "it is no stripe size", "a multiple of 64KiB below 4GiB")
		open := s.Below == Size{}
		p.check(s.Below.Share == 0, name+".below", s.Below, "it is not in bytes", "such as 1GiB")
		p.check(!open || i == len(c.Lustre.Stripes)-1, name+".below", "", "layouts after one for any size are never used", "leave below out in the last alone")
		p.check(open || s.Below.Bytes > last, name+".below", s.Below, "it is not above the one before", "order layouts by size")
		last = s.Below.Bytes
	}
}

func (c *Config) validateLimits(p *Problems) {
	l := &c.Limits
	between(p, "limits.sessions", l.Sessions, 2, 1<<20)
	between(p, "limits.unproven", l.Unproven, 1, 1<<16)
	between(p, "limits.in_flight_per_session", l.InFlightPerSession, 1, 1<<16)
	between(p, "limits.in_flight", l.InFlight, 2, 1<<24)
	between(p, "limits.open_files", l.OpenFiles, 2, 1<<24)
	within(p, "limits.request_memory", l.RequestMemory, 16<<20, 1<<40)
	between(p, "limits.waiters", l.Waiters, 2, 1<<20)
	within(p, "limits.lease_max", l.LeaseMax, 1<<20, 64<<20)
	within(p, "limits.lease_min", l.LeaseMin, 1<<20, 64<<20)
	p.check(l.LeaseMin.Bytes <= l.LeaseMax.Bytes, "limits.lease_min", l.LeaseMin, "it is above limits.lease_max", "at most "+l.LeaseMax.String())
	within(p, "limits.inline_threshold", l.InlineThreshold, 0, wire.MaxData)
}

func absolute(p *Problems, key, path string, required bool) {
	switch {
	case path == "":
		p.check(!required, key, path, "it is empty", "an absolute path")
	default:
		p.check(filepath.IsAbs(path), key, path, "it is not an absolute path", "begin it with /")
		p.check(!strings.ContainsRune(path, 0), key, path, "it holds a NUL byte", "remove it")
	}
}

func oneOf(p *Problems, key, value string, values ...string) {
	p.check(slices.Contains(values, value), key, value, "the value is unknown", "one of "+strings.Join(values, ", "))
}

func between(p *Problems, key string, value, low, high int) {
	p.check(value >= low && value <= high, key, value, "it is out of range", fmt.Sprintf("%d to %d", low, high))
}

func within(p *Problems, key string, value Size, low, high int64) {
	p.check(value.Share == 0, key, value, "it is not in bytes", "such as "+Bytes(high).String())
	p.check(value.Share != 0 || value.Bytes >= low && value.Bytes <= high, key, value, "it is out of range",
		fmt.Sprintf("%s to %s", Bytes(low), Bytes(high)))
}

// checkFiles reports named files that cannot be read, and a key that others can.
func (c *Config) checkFiles() Problems {
	var p Problems
	for _, f := range []struct {
		key, name string
		secret    bool
	}{
		{"key_file", c.KeyFile, true},
		{"tls.ca", c.TLS.CA, false},
		{"tls.cert", c.TLS.Cert, false},
		{"tls.key", c.TLS.Key, true},
		{"nats.credentials", c.NATS.Credentials, true},
		{"nats.tls.ca", c.NATS.TLS.CA, false},
		{"nats.tls.cert", c.NATS.TLS.Cert, false},
		{"nats.tls.key", c.NATS.TLS.Key, true},
		{"s3.ca", c.S3.CA, false},
		{"s3.credentials_file", c.S3.CredentialsFile, true},
	} {
		if f.name == "" {
			continue
		}
		file, err := os.Open(f.name)
		if err != nil {
			p.add(f.key, f.name, "it cannot be read: "+err.Error(), "name a file that the daemon's user can read")
			continue
		}
		info, err := file.Stat()
		file.Close()
		p.check(err == nil && info.Mode().IsRegular(), f.key, f.name, "it is not a file", "name a regular file")
		p.check(err != nil || !f.secret || info.Mode().Perm()&0o077 == 0, f.key, f.name, "other users can read it or change it", "chmod 600 "+f.name)
	}
	return p
}
