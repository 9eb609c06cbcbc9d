package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
)

// The versions of the control protocol that this release supports. A session uses the newest that both sides
// support (Welcome.version). Without one in common there is none.
//
//	1  buffers, files, leases, drains and stages; between the daemons of a cluster: owners,
//	   holds, moves. The first release had daemons alone, which refuse the latter by name
//	2  jobs; second copies (Buffer.replicas, Replicate, Take.replica); tokens; Recheck;
//	   lifetimes of batch jobs; transactions; symbolic links, FIFOs and sockets; extended
//	   attributes; exchanges of names
//
// Allowed changes of the schema:
//
//   - Without a new version: fields that the other side may ignore, since nothing is
//     wrong where they are missing.
//   - With a new version: requests, and fields and values that must not be ignored. Each
//     stands in Since, so that no session of an older version is sent one; the sender
//     does it the older way, or returns an error that names the side to upgrade.
//   - Never: the frame, Hello, Challenge, Prove, Welcome and Error, beyond new fields:
//     they carry the reason of a refusal to every version. Numbers are not used twice, and meanings do not change.
//
// A release supports its version and the one before, so that a cluster can be upgraded one daemon after the other.
// MinVersion follows MaxVersion one behind at the earliest. The one-sided fabrics have versions of their own:
// Welcome offers a session only those that its version has. Common work of all daemons of a cluster is done as the
// oldest of them can (bbd/cluster/version.go). Records that outlive a daemon have rules of their own
// (meta/metapb/record.proto, bbd/store/format.go, meta/gossip/record.go).
const (
	MinVersion = 1
	MaxVersion = 2
)

// The versions with features that a daemon checks for before it sends a request.
const (
	VersionJobs      = 2
	VersionReplicas  = 2
	VersionTokens    = 2
	VersionRechecks  = 2
	VersionLifetimes = 2
	VersionDrainTo   = 2
	VersionTxns      = 2
	VersionFences    = 2
	VersionBelow     = 2
	VersionSpecial   = 2
	VersionXattrs    = 2
	VersionRebuilds  = 2
	VersionNames     = 2
	VersionExchange  = 2
)

// TxnCommitted is the state of a transaction that is decided and not folded, as clients see it.
const TxnCommitted = "committed"

// Versions are those of one side: all from Min to Max.
type Versions struct{ Min, Max uint32 }

// Own returns this release's versions.
func Own() Versions { return Versions{MinVersion, MaxVersion} }

// Common returns the newest version that both have. It returns false if there is none.
func (v Versions) Common(other Versions) (uint32, bool) {
	newest := min(v.Max, other.Max)
	return newest, newest >= max(v.Min, other.Min)
}

// String returns "version 2" or "versions 1 to 2".
func (v Versions) String() string {
	if v.Min == v.Max {
		return fmt.Sprintf("version %d", v.Max)
	}
	return fmt.Sprintf("versions %d to %d", v.Min, v.Max)
}

// Side is one side of a session that cannot be. It has its name, for people, and its versions.
type Side struct {
	Name string
	Versions
}

// NoCommon is the error of two sides without a version in common. It names both, and the remedy.
func NoCommon(op, path string, a, b Side) *bb.Error {
	older, newer := a, b
	if older.Max > newer.Max {
		older, newer = newer, older
	}
	why := fmt.Sprintf("%s supports protocol %v, and %s supports protocol %v: they have none in common", a.Name, a.Versions, b.Name, b.Versions)
	return bb.E(bb.Unsupported, op, path, why).
		WithRemedy(fmt.Sprintf("upgrade %s to a release that supports version %d", older.Name, newer.Min))
}

// Since returns the version that a request came with, and the request's name.
func Since(typ Type, m proto.Message) (version uint32, what string) {
	switch typ {
	case Type_TYPE_JOBS, Type_TYPE_JOB, Type_TYPE_JOB_CANCEL:
		return VersionJobs, "jobs"
	case Type_TYPE_LIFETIME_OPEN, Type_TYPE_LIFETIME_LEAVE, Type_TYPE_LIFETIME_END, Type_TYPE_LIFETIME_DUE, Type_TYPE_LIFETIMES:
		return VersionLifetimes, "lifetimes of jobs"
	case Type_TYPE_TXN_BEGIN, Type_TYPE_TXN_ADOPT, Type_TYPE_TXN_COMMIT, Type_TYPE_TXN_ABORT, Type_TYPE_TXN_RENEW,
		Type_TYPE_TXN_GET, Type_TYPE_TXN_LIST, Type_TYPE_PLACE_RENAME, Type_TYPE_PLACE_REMOVE:
		return VersionTxns, "transactions"
	case Type_TYPE_MKNOD:
		return VersionSpecial, "symbolic links, FIFOs and sockets"
	case Type_TYPE_SET_XATTR, Type_TYPE_XATTRS:
		return VersionXattrs, "extended attributes"
	case Type_TYPE_EXCHANGE, Type_TYPE_FOLLOW:
		return VersionExchange, "exchanging names"
	case Type_TYPE_BUFFER_REBUILD:
		return VersionRebuilds, "rebuilding a namespace"
	case Type_TYPE_TOKEN:
		return VersionTokens, "tokens"
	case Type_TYPE_REPLICATE:
		return VersionReplicas, "second copies"
	case Type_TYPE_NAMES:
		return VersionNames, "namespaces that are logs"
	case Type_TYPE_RECHECK:
		return VersionRechecks, "checking the store again"
	case Type_TYPE_NODE_DRAIN:
		if drain, ok := m.(*NodeDrain); ok && len(drain.To) > 0 {
			return VersionDrainTo, "draining a node to others"
		}
	case Type_TYPE_DRAIN:
		if drain, ok := m.(*Drain); ok && drain.Below != "" {
			return VersionBelow, "draining part of a buffer"
		}
	case Type_TYPE_TAKE:
		if take, ok := m.(*Take); ok && take.Replica {
			return VersionReplicas, "second copies"
		}
	case Type_TYPE_BUFFER_CREATE:
		if spec, ok := m.(*Buffer); ok && spec.Replicas > 1 {
			return VersionReplicas, "second copies"
		}
	case Type_TYPE_OPEN:
		if open, ok := m.(*Open); ok && open.Fence {
			return VersionFences, "ending other writers"
		}
	}
	return 1, ""
}

// Speakable returns nil if a session of a version has a request, else Lacks.
func Speakable(version uint32, other string, typ Type, m proto.Message) error {
	if since, what := Since(typ, m); since > version {
		return Lacks(what, since, other, version)
	}
	return nil
}

// Lacks is the error of a request of a version that the other daemon or client does not have yet.
func Lacks(what string, since uint32, other string, version uint32) *bb.Error {
	return bb.E(bb.Unsupported, "request", what, fmt.Sprintf("came with protocol version %d, and %s uses version %d here", since, other, version)).
		WithRemedy(fmt.Sprintf("upgrade the side below version %d: see bbctl nodes", since))
}
