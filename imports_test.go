package forebay

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The import rules. Paths are relative to the module. "x/..." stands for x and all below it, "..."
// for every package. An edge that no table here allows is an error, so a new package or a new
// library needs a line in one of them.

const module = "forebay/"

// layers lists the packages of ours that each package may import, besides its own children. The
// first pattern that fits a package decides.
var layers = []struct {
	from string
	to   []string
}{
	{"internal/bb", nil},
	{"internal/checksum", nil},
	{"internal/xattr", []string{"internal/bb"}},
	{"internal/measure", nil},
	{"internal/hostlimit", []string{"internal/bb", "internal/checksum", "internal/measure"}},
	{"internal/...", []string{"internal/..."}},

	{"rdma", nil},
	{"rdma/internal/...", []string{"rdma"}},
	{"rdma/tcp", []string{"rdma", "rdma/internal/..."}},
	{"rdma/ofi", []string{"rdma", "rdma/internal/...", "rdma/ofi/..."}},
	{"rdma/ofi/fi", []string{"rdma"}},
	{"rdma/ofi/internal/lifeline", []string{"rdma", "rdma/internal/..."}},
	{"rdma/ofi/internal/local", []string{"rdma", "rdma/internal/...", "rdma/ofi/fi"}},
	{"rdma/ofi/internal/progress", []string{"rdma/ofi/fi"}},
	{"rdma/...", []string{"rdma/..."}},

	{"meta/retry", nil},
	{"meta/conn", []string{"meta/clustertls", "meta/retry", "internal/..."}},
	{"meta/kv", []string{"meta/conn", "meta/retry", "internal/..."}},
	{"meta/kv/plain", []string{"meta/conn", "internal/bb"}},
	{"meta/stream", []string{"meta/conn", "meta/retry", "internal/..."}},
	{"meta/queue", []string{"meta/conn", "internal/..."}},
	{"meta/leaders/plan", nil},
	{"meta/leaders", []string{"meta/leaders/plan", "meta/conn", "internal/..."}},
	{"meta/ids", []string{"meta/kv", "meta/retry", "meta/metapb", "internal/..."}},
	{"meta/events", []string{"meta/conn", "internal/..."}},
	{"meta/ops", []string{"meta/kv", "meta/queue", "meta/conn", "meta/retry", "meta/metapb", "internal/..."}},
	{"meta/batch", []string{"meta/kv", "meta/conn", "meta/retry", "meta/metapb", "internal/..."}},
	{"meta/namespace", []string{"meta/kv", "internal/bb", "internal/xattr"}},
	{"meta/nsbucket/cache", nil},
	{"meta/nsbucket/record", []string{"meta/namespace", "meta/kv", "meta/metapb", "internal/bb"}},
	{"meta/nsbucket/listing", []string{"meta/nsbucket/record", "meta/kv", "internal/bb"}},
	{"meta/nsbucket/oplog", []string{"meta/nsbucket/record", "meta/namespace", "meta/kv", "internal/bb"}},
	{"meta/nsbucket", []string{"meta/nsbucket/...", "meta/namespace", "meta/kv", "meta/retry", "internal/..."}},
	{"meta/nslog/pages", []string{"internal/bb"}},
	{"meta/nslog/journal", nil},
	{"meta/nslog/footprint", []string{"internal/bb"}},
	{"meta/nslog/tail", nil},
	{"meta/nslog/lease", []string{"meta/nslog/record", "meta/retry", "internal/bb"}},
	{"meta/nslog/record", []string{"meta/namespace", "meta/kv", "internal/..."}},
	{"meta/nslog/table", []string{"meta/nslog/pages", "meta/nslog/record", "internal/bb"}},
	{"meta/nslog/once", []string{"meta/nslog/record", "meta/nslog/table", "internal/bb"}},
	{"meta/nslog/shared/calls", []string{"meta/nslog", "meta/nslog/lease", "meta/nslog/once", "meta/nslog/record", "meta/nslog/shared/callpb", "meta/namespace", "meta/kv", "internal/..."}},
	{"meta/nslog/shared/turn", []string{"internal/bb"}},
	{"meta/nslog/shared/walk", []string{"meta/namespace", "meta/nslog", "meta/nslog/record", "meta/nslog/shared/calls", "internal/bb"}},
	{"meta/nslog/purge", nil},
	{"meta/nslog/owner", []string{"meta/nslog/...", "meta/stream", "meta/kv", "meta/retry", "internal/..."}},
	{"meta/nslog/shared", []string{"meta/nslog/...", "meta/nslog", "meta/namespace", "meta/stream", "meta/kv", "meta/retry", "internal/..."}},
	{"meta/nslog/salvage", []string{"meta/namespace", "meta/nslog/owner", "meta/nslog/pages", "meta/nslog/record", "meta/nslog/table", "internal/bb"}},
	{"meta/nslog", []string{"meta/nslog/...", "meta/namespace", "meta/stream", "meta/kv", "meta/retry", "internal/..."}},
	{"meta/txn", []string{"meta/namespace", "meta/kv", "meta/retry", "meta/metapb", "internal/..."}},
	{"meta/embedded/batches", []string{"internal/bb"}},
	{"meta/embedded/elections", nil},
	{"meta/...", []string{"meta/...", "internal/..."}},

	{"flusher/plan", []string{"internal/bb"}},
	{"flusher/content", []string{"flusher/backing", "flusher/codec", "internal/bb", "internal/checksum"}},
	{"flusher/owned", []string{"flusher/backing", "flusher/codec", "flusher/content", "internal/bb"}},
	{"flusher/why", []string{"internal/bb"}},
	{"flusher/storeop", []string{"flusher/backing", "flusher/codec", "flusher/owned", "flusher/plan", "internal/bb"}},
	{"flusher/upload", []string{"flusher/backing", "flusher/codec", "flusher/owned", "flusher/receipt", "flusher/spool", "internal/bb", "internal/xattr"}},
	{"flusher/codec", []string{"internal/..."}},
	{"flusher/spool", []string{"flusher/backing", "flusher/codec", "internal/..."}},
	{"flusher/flow", nil},
	{"flusher/receipt", []string{"flusher/backing", "flusher/codec", "internal/bb"}},
	{"flusher/backing/asuser/confine", nil},
	{"flusher/backing/asuser/former", []string{"internal/bb"}},
	{"flusher/backing/asuser/protocol", []string{"flusher/backing", "flusher/backing/posix/lustre", "internal/bb", "internal/xattr"}},
	{"flusher/backing/asuser/serve", []string{"flusher/backing", "flusher/backing/asuser/...", "flusher/backing/posix/...", "internal/..."}},
	{"flusher/backing/posix/fileio", nil},
	{"flusher/backing/posix/syncgroup", nil},
	{"flusher/backing/posix/lustre", nil},
	{"flusher/backing/posix/identity", []string{"flusher/backing/posix/lustre"}},
	{"flusher/backing/posix/link", []string{"flusher/backing", "internal/bb"}},
	{"flusher/backing/s3/answer", []string{"internal/bb"}},
	{"flusher/backing/s3/connect", []string{"internal/bb", "internal/userfile"}},
	{"flusher/backing/s3/uncertain", []string{"flusher/backing"}},
	{"flusher/backing/...", []string{"flusher/backing/...", "internal/..."}},
	{"flusher/...", []string{"flusher/...", "internal/..."}},

	{"bbd/admit", []string{"internal/bb"}},
	{"bbd/share", nil},
	{"bbd/lockrank", nil},
	{"bbd/storerules", []string{"internal/bb"}},
	{"bbd/metrics", []string{"internal/..."}},
	{"bbd/store/format", []string{"internal/bb", "internal/checksum"}},
	{"bbd/store/folder", []string{"internal/bb"}},
	{"bbd/store/populate", nil},
	{"bbd/store/regionfile", []string{"bbd/store/format", "bbd/store/folder", "internal/..."}},
	{"bbd/store/...", []string{"bbd/store/...", "bbd/share", "internal/..."}},
	{"bbd/access", []string{"internal/bb", "internal/nss"}},
	{"bbd/call", []string{"bbd/access", "internal/wire"}},
	{"bbd/rpc", []string{"bbd/access", "bbd/share", "internal/bb", "internal/wire", "internal/clustercert", "internal/unixsocket"}},
	{"bbd/cluster", []string{"bbd/peer", "bbd/access", "bbd/admit", "meta/gossip", "rdma/...", "internal/..."}},
	{"bbd/fabric", []string{"bbd/store", "rdma/...", "internal/..."}},
	{"bbd/alloc", []string{"bbd/access", "bbd/admit", "bbd/lockrank", "bbd/share", "bbd/store", "internal/..."}},
	{"bbd/backings", []string{"bbd/access", "bbd/cluster", "bbd/lockrank", "bbd/storerules", "flusher/backing/...", "meta/gossip", "internal/..."}},
	{"bbd/batch", []string{"bbd/access", "bbd/call", "bbd/cluster", "bbd/lockrank", "flusher", "flusher/plan", "meta/batch", "meta/gossip", "meta/ops", "internal/..."}},
	{"bbd/dedup", []string{"bbd/lockrank", "internal/..."}},
	{"bbd/drain", []string{"bbd/access", "bbd/call", "bbd/cluster", "bbd/fate", "bbd/flushrule", "bbd/lockrank", "bbd/peer", "bbd/transfer", "bbd/walk", "flusher", "flusher/backing", "flusher/plan", "flusher/receipt", "meta/gossip", "meta/namespace", "meta/ops", "internal/..."}},
	{"bbd/fate", []string{"bbd/store", "internal/bb"}},
	{"bbd/startup", nil},
	{"bbd/overlap", []string{"bbd/access", "internal/bb"}},
	{"bbd/aside", []string{"bbd/access", "bbd/fate", "bbd/lockrank", "internal/bb", "internal/lockorder"}},
	{"bbd/namelock", []string{"bbd/lockrank", "internal/lockorder"}},
	{"bbd/staging", []string{"bbd/access", "bbd/alloc", "bbd/call", "bbd/cluster", "bbd/store", "bbd/transfer", "bbd/walk", "flusher/backing", "flusher/codec", "flusher/stage", "meta/gossip", "meta/namespace", "meta/ops", "internal/..."}},
	{"bbd/status", []string{"bbd/access", "bbd/alloc", "bbd/aside", "bbd/call", "bbd/cluster", "bbd/fate", "bbd/flushrule", "bbd/lockrank", "bbd/store", "flusher", "flusher/backing/asuser", "flusher/backing/health", "meta", "meta/gossip", "meta/conn", "internal/..."}},
	{"bbd/transfer", []string{"bbd/access", "bbd/call", "bbd/cluster", "meta/gossip", "meta/ops", "internal/..."}},
	{"bbd/txn", []string{"bbd/access", "bbd/call", "bbd/cluster", "bbd/lockrank", "meta/namespace", "meta/txn", "internal/..."}},
	{"bbd/walk", []string{"bbd/access", "meta/txn", "internal/bb"}},
	{"bbd/forward", []string{"bbd/access", "bbd/alloc", "bbd/cluster", "bbd/dedup", "bbd/lockrank", "bbd/peer", "bbd/store", "rdma", "internal/..."}},
	{"bbd/origin", []string{"bbd/alloc", "bbd/cluster", "bbd/lockrank", "bbd/peer", "bbd/store", "flusher/codec", "rdma", "internal/..."}},
	{"bbd/readcache", []string{"bbd/alloc", "bbd/lockrank", "bbd/origin", "bbd/store", "internal/..."}},
	{"bbd/owner", []string{"internal/bb"}},
	{"bbd/retry", []string{"internal/bb"}},
	{"bbd/dirty", []string{"bbd/cluster", "bbd/lockrank", "internal/..."}},
	{"bbd/file", []string{"bbd/access", "bbd/dedup", "bbd/lockrank", "bbd/owner", "bbd/store", "internal/..."}},
	{"bbd/handle", []string{"bbd/access", "bbd/alloc", "bbd/call", "bbd/dedup", "bbd/fabric", "bbd/file", "bbd/owner", "bbd/paths", "bbd/readcache", "bbd/rpc", "bbd/share", "bbd/store", "flusher/plan", "internal/..."}},
	{"bbd/change", []string{"bbd/access", "bbd/call", "bbd/cluster", "bbd/dirty", "bbd/file", "bbd/freeze", "bbd/lockrank", "bbd/owner", "bbd/paths", "bbd/peer", "flusher", "flusher/storeop", "meta/namespace", "meta/nslog", "meta/txn", "internal/..."}},
	{"bbd/entries", []string{"bbd/access", "bbd/call", "bbd/owner", "bbd/paths", "bbd/store", "meta/namespace", "internal/..."}},
	{"bbd/replica", []string{"bbd/access", "bbd/cluster", "bbd/dirty", "bbd/lockrank", "bbd/namelock", "bbd/owner", "bbd/peer", "bbd/retry", "bbd/store", "flusher", "meta/gossip", "internal/..."}},
	{"bbd/migrate", []string{"bbd/access", "bbd/dirty", "bbd/owner", "bbd/retry", "bbd/store", "bbd/transfer", "flusher", "internal/..."}},
	{"bbd/admin", []string{"bbd/access", "internal/bb", "internal/unixsocket"}},
	{"bbd/observe", []string{"bbd/metrics", "bbd/status", "bbd/store", "internal/bb", "internal/wire"}},
	{"bbd/flushrule", []string{"bbd/access", "bbd/dirty", "bbd/lockrank", "bbd/owner", "bbd/walk", "flusher/plan", "internal/bb", "internal/lockorder", "internal/wire"}},
	{"bbd/bufferspec", []string{"flusher/codec", "internal/bb", "internal/wire"}},
	{"bbd/paths", []string{"bbd/access", "bbd/walk", "meta/namespace", "meta/txn", "internal/bb", "internal/xattr"}},
	{"bbd/nodes", []string{"bbd/access", "bbd/call", "bbd/cluster", "bbd/owner", "bbd/transfer", "meta/gossip", "internal/..."}},
	{"bbd/reassert", []string{"bbd/dirty", "bbd/fate", "bbd/lockrank", "bbd/owner", "bbd/store", "meta/namespace", "internal/..."}},
	{"bbd/recovery", []string{"bbd/fate", "bbd/owner", "bbd/reassert", "bbd/store", "flusher", "internal/bb"}},
	{"bbd/registry", []string{"bbd/access", "bbd/aside", "bbd/backings", "bbd/bufferspec", "bbd/call", "bbd/cluster", "bbd/fate", "bbd/freeze", "bbd/lockrank", "bbd/namelock", "bbd/overlap", "bbd/store", "flusher", "meta", "meta/gossip", "meta/txn", "internal/..."}},
	{"bbd/ids", []string{"bbd/lockrank", "internal/bb", "internal/lockorder"}},
	{"bbd/listen", []string{"bbd/peer", "internal/bb", "internal/clustercert"}},
	{"bbd/buffer", []string{"bbd/access", "bbd/alloc", "bbd/aside", "bbd/backings", "bbd/batch", "bbd/change", "bbd/cluster", "bbd/dedup", "bbd/dirty", "bbd/drain", "bbd/entries", "bbd/fate", "bbd/file", "bbd/flushrule", "bbd/forward", "bbd/freeze", "bbd/handle", "bbd/ids", "bbd/migrate", "bbd/observe", "bbd/origin", "bbd/owner", "bbd/paths", "bbd/peer", "bbd/readcache", "bbd/reassert", "bbd/recovery", "bbd/replica", "bbd/staging", "bbd/store", "bbd/txn", "bbd/walk", "bbd/writeback", "flusher", "flusher/backing/health", "flusher/codec", "flusher/stage", "meta/namespace", "meta/nslog", "meta/nslog/shared", "meta/txn", "internal/..."}},
	{"bbd/freeze", []string{"bbd/access", "bbd/cluster", "bbd/lockrank", "bbd/peer", "meta/gossip", "internal/..."}},
	{"bbd/writeback", []string{"bbd/access", "bbd/cluster", "bbd/dirty", "bbd/lockrank", "bbd/owner", "bbd/store", "flusher", "flusher/backing", "flusher/codec", "flusher/plan", "flusher/storeop", "flusher/upload", "meta/namespace", "internal/..."}},
	{"bbd/leftovers", []string{"bbd/access", "bbd/lockrank", "flusher/backing", "meta/gossip", "internal/..."}},
	{"bbd/...", []string{"bbd/...", "flusher/...", "meta/...", "rdma/...", "internal/..."}},

	{"client/internal/session", []string{"rdma/...", "internal/..."}},
	{"client/internal/region", []string{"internal/..."}},
	{"client/internal/remote", []string{"client/internal/session", "rdma", "internal/..."}},
	{"client/internal/lease", []string{"client/internal/session", "client/internal/region", "client/internal/remote", "rdma", "internal/..."}},
	{"client/internal/reader", []string{"client/internal/session", "client/internal/region", "client/internal/remote", "rdma", "internal/..."}},
	{"client/internal/writer", []string{"client/internal/session", "client/internal/remote", "client/internal/lease", "client/internal/reader", "internal/..."}},
	{"client/admin", []string{"client", "internal/..."}},
	{"client", []string{"client/internal/...", "rdma/...", "internal/..."}},
	{"slurm/slurmctl", []string{"internal/bb"}},
	{"slurm/directive", []string{"client/admin", "internal/bb"}},
	{"slurm/...", []string{"slurm/...", "client", "client/admin", "internal/..."}},

	{"cmd/bbctl/layout", nil},
	{"cmd/bbctl/bench", []string{"cmd/bbctl/layout", "client", "client/admin", "internal/..."}},
	{"cmd/bbctl/app", []string{"cmd/bbctl/layout", "client", "client/admin", "internal/..."}},
	{"cmd/bbctl/files", []string{"cmd/bbctl/app", "client", "client/admin", "internal/..."}},
	{"cmd/bbctl/copying", []string{"cmd/bbctl/app", "cmd/bbctl/status", "client", "client/admin", "internal/..."}},
	{"cmd/bbctl/mount", []string{"cmd/bbctl/app", "client", "internal/..."}},
	// bbctl verify checks receipts against the store when no daemon is left.
	{"cmd/bbctl/...", []string{"cmd/bbctl/...", "client/...", "slurm/...", "flusher/...", "rdma/...", "internal/..."}},
	{"cmd/bbd/...", []string{"cmd/bbd/...", "bbd/...", "flusher/...", "meta/...", "rdma/...", "internal/..."}},
	// Rows compare with the S3 library alone, and with libfabric alone.
	{"cmd/bbbench", []string{"cmd/bbbench/...", "internal/..."}},
	{"cmd/bbbench/report", []string{"internal/..."}},
	{"cmd/bbbench/process", []string{"internal/..."}},
	{"cmd/bbbench/testbed", []string{"cmd/bbbench/process", "flusher/backing/s3", "rdma/ofi/fi", "client/...", "internal/..."}},
	{"cmd/bbbench/datapath", []string{"cmd/bbbench/testbed", "cmd/bbbench/process", "cmd/bbbench/report", "client/...", "rdma/...", "internal/..."}},
	{"cmd/bbbench/stores", []string{"cmd/bbbench/testbed", "cmd/bbbench/process", "cmd/bbbench/report", "flusher/backing/s3", "client/...", "internal/..."}},
	{"cmd/bbbench/...", []string{"cmd/bbbench/testbed", "cmd/bbbench/process", "cmd/bbbench/report", "client/...", "internal/..."}},
	{"cmd/bbmount/allocate", []string{"internal/bb"}},
	{"cmd/bbmount/peers", []string{"cmd/bbmount/killed", "cmd/bbmount/request", "client/..."}},
	{"cmd/bbmount/opened", []string{"client"}},
	{"cmd/bbmount/content", []string{"cmd/bbmount/kernel", "cmd/bbmount/sparse", "client", "internal/bb"}},
	{"cmd/bbmount/pathlock", []string{"internal/bb"}},
	{"cmd/bbmount/passthrough", []string{"client/...", "internal/..."}},
	{"cmd/bbmount/bufferfs", []string{"cmd/bbmount/allocate", "cmd/bbmount/attr", "cmd/bbmount/attrcache", "cmd/bbmount/content", "cmd/bbmount/errno", "cmd/bbmount/kernel", "cmd/bbmount/killed", "cmd/bbmount/names", "cmd/bbmount/opened", "cmd/bbmount/passthrough", "cmd/bbmount/pathlock", "cmd/bbmount/peers", "cmd/bbmount/request", "cmd/bbmount/room", "cmd/bbmount/sparse", "cmd/bbmount/xattrs", "client/...", "internal/..."}},
	{"cmd/bbmount/request", []string{"cmd/bbmount/killed", "client/...", "internal/..."}},
	{"cmd/bbmount/names", []string{"client/...", "internal/..."}},
	{"cmd/bbmount/xattrs", []string{"cmd/bbmount/request", "client/...", "internal/..."}},
	{"cmd/bbmount/fstab", []string{"internal/bb"}},
	{"cmd/bbmount/device", []string{"internal/bb", "internal/mounts"}},
	{"cmd/bbmount/tables", []string{"internal/bb"}},
	{"cmd/bbmount", []string{"cmd/bbmount/attrcache", "cmd/bbmount/bufferfs", "cmd/bbmount/device", "cmd/bbmount/fstab", "cmd/bbmount/kernel", "cmd/bbmount/passthrough", "cmd/bbmount/peers", "cmd/bbmount/tables", "client/...", "internal/..."}},
	{"cmd/...", []string{"client/...", "rdma/...", "internal/..."}},
	{"scripts/...", []string{"internal/..."}},
}

// testLayers replaces layers for tests and packages of test support. Tests above internal run
// against real components, so they may start any of them. Packages that may never meet, even there,
// are named.
var testLayers = []struct {
	from string
	to   []string
}{
	{"internal/clustertest", []string{"client", "client/admin", "internal/..."}},
	{"internal/hostiletest", []string{"client", "client/admin", "internal/..."}},
	{"internal/slurmtest", []string{"client", "client/admin", "internal/..."}},
	{"internal/...", []string{"internal/..."}},
	{"rdma/...", []string{"rdma/...", "internal/..."}},
	{"meta/...", []string{"meta/...", "internal/...", "scripts/..."}},
	{"flusher/...", []string{"flusher/...", "internal/...", "scripts/..."}},
	{"bbd/store/...", []string{"bbd/store/...", "internal/..."}},
	{"...", []string{"..."}},
}

// libraries lists the importers of foreign packages. A library that talks to the outside has one
// importer.
var libraries = []struct {
	path string
	by   []string
}{
	{"github.com/nats-io/nats.go/...", []string{"meta/conn", "meta/kv/...", "meta/stream", "meta/queue", "meta/leaders", "meta/metatest"}},
	{"github.com/nats-io/nats-server/v2/...", []string{"meta/embedded", "meta/embedded/elections"}},
	{"github.com/hashicorp/memberlist", []string{"meta/gossip"}},
	{"github.com/minio/minio-go/v7/...", []string{"flusher/backing/s3/..."}},
	{"github.com/klauspost/compress/...", []string{"flusher/codec"}},
	{"github.com/prometheus/...", []string{"bbd/metrics"}},
	{"github.com/minio/crc64nvme", []string{"internal/checksum"}},

	{"github.com/spf13/viper", []string{"cmd/bbd/..."}},
	{"github.com/go-viper/mapstructure/v2", []string{"cmd/bbd/..."}},
	{"go.yaml.in/yaml/v3", []string{"cmd/bbctl/app", "cmd/bbd/..."}},
	{"github.com/coreos/go-systemd/v22/daemon", []string{"cmd/bbd/...", "cmd/bbmount"}},
	{"github.com/spf13/cobra/...", []string{"cmd/...", "internal/cli"}},
	{"github.com/spf13/pflag", []string{"cmd/...", "internal/cli"}},
	{"github.com/schollz/progressbar/v3", []string{"cmd/..."}},
	{"github.com/dustin/go-humanize", []string{"cmd/..."}},
	{"github.com/bmatcuk/doublestar/v4", []string{"cmd/bbctl/..."}},
	{"golang.org/x/term", []string{"cmd/..."}},
	{"github.com/charmbracelet/x/ansi", []string{"cmd/bbctl/..."}},
	{"charm.land/bubbletea/v2", []string{"cmd/bbctl/status"}},

	{"github.com/tidwall/btree", []string{"bbd/...", "flusher/...", "meta/..."}},
	{"google.golang.org/protobuf/...", []string{"internal/...", "meta/...", "bbd/...", "client/..."}},
	// The mount, and the file system of tests that loses power.
	{"github.com/hanwen/go-fuse/v2/...", []string{"cmd/bbmount/...", "internal/powertest"}},

	{"golang.org/x/sync/...", []string{"..."}},
	{"golang.org/x/sys/...", []string{"..."}},
	{"golang.org/x/time/rate", []string{"..."}},
}

// testLibraries are for tests and test support alone.
var testLibraries = []string{
	"go.uber.org/goleak",
	"github.com/google/go-cmp/...",
	"github.com/anishathalye/porcupine",
	"github.com/cockroachdb/datadriven",
	"github.com/rogpeppe/go-internal/...",
}

// without lists the parts of the standard library that a package does not use. Pure packages do no
// I/O, and the store does no networking.
var without = []struct {
	from string
	std  []string
}{
	{"internal/bb", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"flusher/plan", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"meta/nslog/pages", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"meta/nslog/record", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"meta/nsbucket/record", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"meta/nslog/table", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"meta/nslog/footprint", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"meta/nslog/tail", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"meta/nslog/shared/turn", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"bbd/admit", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"bbd/fate", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"bbd/owner", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"bbd/storerules", []string{"os/...", "net", "net/http/...", "log/..."}},
	{"bbd/store/...", []string{"net/..."}},
}

// unsafeFiles are the files that may import unsafe. A comment just above each use names the rule of
// package unsafe that makes it right.
var unsafeFiles = []string{
	"bbd/store/format/format.go",
	"cmd/bbmount/device/backing.go",
	"flusher/backing/asuser/confine/confine.go",
	"flusher/backing/asuser/confine/seccomp.go",
	"flusher/backing/posix/lustre/project.go",
	"meta/embedded/elections/elections.go", // for go:linkname alone
	"rdma/ofi/fi/native.go",
}

// cgoPackage is the only package that may import "C".
const cgoPackage = "rdma/ofi/fi"

// edge returns the reason why the package from may not import to, or nil if it may. Packages of
// ours are given relative to the module, others by their import path. ours is whether to is one of
// the module. Test edges are those of _test.go files.
func edge(from, to string, ours, test bool) error {
	test = test || testSupport(from)
	switch {
	case ours:
		return ourEdge(from, to, test)
	case to == "C":
		if from != cgoPackage {
			return fmt.Errorf(`import "C" stands in %s alone`, cgoPackage)
		}
		return nil
	case !strings.Contains(strings.SplitN(to, "/", 2)[0], "."):
		return stdEdge(from, to, test)
	default:
		return libraryEdge(from, to, test)
	}
}

func ourEdge(from, to string, test bool) error {
	if from == to { // an external test of its own package
		return nil
	}
	if testSupport(to) && !test {
		return fmt.Errorf("%s is for tests alone", to)
	}
	table := layers
	if test {
		table = testLayers
	}
	for _, l := range table {
		if !matches(l.from, from) {
			continue
		}
		if matchesAny(l.to, to) {
			return nil
		}
		return fmt.Errorf("it may import only [%s] of ours", strings.Join(l.to, " "))
	}
	return fmt.Errorf("no layer is known for %s", from)
}

func stdEdge(from, to string, test bool) error {
	for _, w := range without {
		if !test && matches(w.from, from) && matchesAny(w.std, to) {
			return fmt.Errorf("it does without [%s]", strings.Join(w.std, " "))
		}
	}
	return nil
}

func libraryEdge(from, to string, test bool) error {
	if matchesAny(testLibraries, to) {
		if test {
			return nil
		}
		return fmt.Errorf("%s is for tests alone", to)
	}
	for _, l := range libraries {
		if !matches(l.path, to) {
			continue
		}
		if matchesAny(l.by, from) {
			return nil
		}
		return fmt.Errorf("only [%s] may import it", strings.Join(l.by, " "))
	}
	return errors.New("the library is in no table of imports_test.go")
}

// testSupport reports whether a package holds test support: fakes and conformance
// suites, in packages named like rdmatest.
func testSupport(pkg string) bool {
	base := path.Base(pkg)
	return strings.HasSuffix(base, "test") && base != "test"
}

func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == tree || strings.HasPrefix(pkg, tree+"/")
	}
	return pkg == pattern
}

func matchesAny(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if matches(p, pkg) {
			return true
		}
	}
	return false
}

func TestEdge(t *testing.T) {
	for _, c := range []struct {
		from, to string
		test     bool
		allowed  bool
	}{
		{"internal/bb", "errors", false, true},
		{"internal/bb", "os", false, false},
		{"internal/bb", module + "internal/checksum", false, false},
		{"internal/bb", "golang.org/x/time/rate", false, true},
		{"internal/wire", module + "internal/bb", false, true},
		{"internal/wire", module + "client", true, false},
		{"internal/checksum", "github.com/minio/crc64nvme", false, true},
		{"bbd/store", "github.com/minio/crc64nvme", false, false},

		{"rdma", module + "internal/bb", false, false},
		{"rdma", module + "rdma/tcp", false, false},
		{"rdma", module + "rdma/internal/target", false, false},
		{"rdma", module + "rdma/rdmatest", true, true},
		{"rdma/tcp", module + "rdma", false, true},
		{"rdma/tcp", module + "internal/checksum", false, false},
		{"rdma/tcp", module + "rdma/rdmatest", false, false},
		{"rdma/tcp", module + "rdma/rdmatest", true, true},
		{"rdma/rdmatest", "go.uber.org/goleak", false, true},
		{"rdma/ofi/fi", "C", false, true},
		{"rdma/ofi", "C", false, false},
		{"rdma/tcp", "C", false, false},
		{"rdma/tcp", "C", true, false},

		{"flusher", module + "meta", false, false},
		{"flusher", module + "meta", true, false},
		{"meta", module + "flusher", true, false},
		{"meta/gossip", module + "flusher/plan", false, false},
		{"flusher", module + "flusher/backing", false, true},
		{"flusher/plan", module + "flusher", false, false},
		{"flusher/plan", module + "internal/bb", false, true},
		{"flusher/plan", "net/http", false, false},
		{"flusher/storeop", module + "flusher", false, false},
		{"flusher/upload", module + "flusher/storeop", false, false},
		{"flusher/upload", module + "flusher/plan", false, false},
		{"flusher/plan", "os", true, true},
		{"flusher/backing/posix", module + "flusher/backing", false, true},
		{"flusher/backing/posix", module + "flusher", false, false},

		{"bbd", module + "flusher", false, true},
		{"bbd", module + "meta", false, true},
		{"bbd", module + "client", false, false},
		{"bbd", module + "client", true, true},
		{"bbd/store", module + "bbd", false, false},
		{"bbd/store", module + "rdma", false, false},
		{"bbd/store", "net", false, false},
		{"bbd/store/regionfile", module + "bbd/store", false, false},
		{"bbd/store/populate", module + "bbd/store/regionfile", false, false},
		{"bbd/admit", module + "bbd/store", false, false},
		{"bbd/rpc", module + "internal/wire", false, true},
		{"bbd/rpc", module + "bbd/store", false, false},
		{"bbd/rpc", module + "bbd/fabric", false, false},
		{"bbd/cluster", module + "bbd/rpc", false, false},
		{"bbd/call", module + "bbd/rpc", false, false},
		{"bbd/batch", module + "bbd/rpc", false, false},
		{"bbd/change", module + "bbd/rpc", false, false},
		{"bbd/drain", module + "bbd/rpc", false, false},
		{"bbd/entries", module + "bbd/rpc", false, false},
		{"bbd/nodes", module + "bbd/rpc", false, false},
		{"bbd/registry", module + "bbd/rpc", false, false},
		{"bbd/staging", module + "bbd/rpc", false, false},
		{"bbd/status", module + "bbd/rpc", false, false},
		{"bbd/transfer", module + "bbd/rpc", false, false},
		{"bbd/txn", module + "bbd/rpc", false, false},
		{"bbd/cluster", module + "bbd/peer", false, true},
		{"bbd/cluster", module + "bbd/store", false, false},
		{"bbd/cluster", module + "meta", false, false},
		{"bbd/fabric", module + "bbd/store", false, true},
		{"bbd/fabric", module + "bbd", false, false},
		{"bbd/fabric", module + "meta/gossip", false, false},
		{"bbd/alloc", module + "bbd/admit", false, true},
		{"bbd/alloc", module + "bbd/rpc", false, false},
		{"bbd/alloc", module + "flusher/backing/health", false, false},
		{"bbd/backings", module + "flusher/backing/health", false, true},
		{"bbd/backings", module + "flusher", false, false},
		{"bbd/leftovers", module + "bbd/backings", false, false},
		{"bbd/writeback", module + "flusher", false, true},
		{"bbd/writeback", module + "bbd/readcache", false, false},
		{"bbd/migrate", module + "bbd/transfer", false, true},
		{"bbd/migrate", module + "bbd/origin", false, false},
		{"bbd/recovery", module + "bbd/fate", false, true},
		{"bbd/recovery", module + "bbd/writeback", false, false},
		{"bbd/registry", module + "bbd/freeze", false, true},
		{"bbd/registry", module + "bbd/recovery", false, false},
		{"bbd/registry", module + "bbd/file", false, false},
		{"bbd/freeze", module + "bbd/cluster", false, true},
		{"bbd/freeze", module + "flusher", false, false},
		{"bbd/file", module + "bbd/store", false, true},
		{"bbd/file", module + "bbd/rpc", false, false},
		{"bbd/file", module + "bbd/replica", false, false},
		{"bbd/file", module + "bbd/readcache", false, false},
		{"bbd/handle", module + "bbd/file", false, true},
		{"bbd/handle", module + "bbd/forward", false, false},
		{"bbd/handle", module + "bbd/cluster", false, false},
		{"bbd/change", module + "bbd/file", false, true},
		{"bbd/change", module + "bbd/handle", false, false},
		{"bbd/change", module + "bbd/writeback", false, false},
		{"bbd/entries", module + "bbd/paths", false, true},
		{"bbd/entries", module + "bbd/file", false, false},
		{"bbd/replica", module + "bbd/cluster", false, true},
		{"bbd/replica", module + "bbd/writeback", false, false},
		{"bbd/owner", module + "bbd/cluster", false, false},
		{"bbd/flushrule", module + "flusher/plan", false, true},
		{"bbd/flushrule", module + "flusher", false, false},
		{"bbd/flushrule", module + "bbd/store", false, false},
		{"bbd/staging", module + "bbd/transfer", false, true},
		{"bbd/staging", module + "flusher", false, false},
		{"bbd/staging", module + "bbd/batch", false, false},
		{"bbd/drain", module + "bbd/transfer", false, true},
		{"bbd/drain", module + "bbd/store", false, false},
		{"bbd/drain", module + "bbd/staging", false, false},
		{"bbd/walk", module + "bbd/staging", false, false},
		{"bbd/status", module + "flusher", false, true},
		{"bbd/status", module + "bbd/metrics", false, false},
		{"bbd/status", module + "meta/namespace", false, false},
		{"bbd/transfer", module + "meta/ops", false, true},
		{"bbd/transfer", module + "flusher/stage", false, false},
		{"bbd/transfer", module + "bbd/batch", false, false},
		{"bbd/txn", module + "meta/txn", false, true},
		{"bbd/txn", module + "bbd/store", false, false},
		{"bbd/txn", module + "flusher", false, false},
		{"bbd/fate", module + "bbd/store", false, true},
		{"bbd/fate", module + "meta/namespace", false, false},
		{"bbd/fate", "os", false, false},
		{"bbd/startup", module + "internal/bb", false, false},
		{"bbd/forward", module + "bbd/alloc", false, true},
		{"bbd/forward", module + "bbd/rpc", false, false},
		{"bbd/dedup", module + "bbd/store", false, false},
		{"bbd/origin", module + "bbd/peer", false, true},
		{"bbd/origin", module + "bbd/rpc", false, false},
		{"bbd/origin", module + "bbd/readcache", false, false},
		{"bbd/readcache", module + "bbd/origin", false, true},
		{"bbd/readcache", module + "bbd/rpc", false, false},
		{"bbd/readcache", module + "bbd/cluster", false, false},
		{"bbd/batch", module + "meta/ops", false, true},
		{"bbd/batch", module + "bbd/store", false, false},
		{"bbd/batch", module + "flusher/backing", false, false},

		{"client", module + "rdma/route", false, true},
		{"client", module + "client/admin", false, false},
		{"client/admin", module + "client", false, true},
		{"client/admin", module + "client/internal/session", false, false},
		{"client/internal/session", module + "client/internal/reader", false, false},
		{"client/internal/reader", module + "client/internal/lease", false, false},
		{"client/internal/writer", module + "client/internal/reader", false, true},
		{"client/internal/writer", module + "client", false, false},
		{"client", module + "bbd", false, false},
		{"client", module + "flusher/plan", false, false},
		{"client", module + "meta", false, false},
		{"client", module + "bbd", true, true},
		{"slurm", module + "client", false, true},
		{"slurm", module + "meta", false, false},

		{"cmd/bbd", module + "bbd", false, true},
		{"cmd/bbd", module + "cmd/bbctl", false, false},
		{"cmd/bbctl", module + "bbd", false, false},
		{"cmd/bbctl", module + "meta", false, false},
		{"cmd/bbctl", module + "flusher/backing/s3", false, true},
		{"cmd/demo", module + "flusher", false, false},
		{"somewhere", module + "internal/bb", false, false},

		{"meta/kv", "github.com/nats-io/nats.go/jetstream", false, true},
		{"meta", "github.com/nats-io/nats.go/jetstream", false, false},
		{"meta/kv", module + "meta/metapb", false, false},
		{"meta/kv", module + "meta/conn", false, true},
		{"meta/conn", module + "meta/kv", false, false},
		{"meta/stream", module + "meta/kv", false, false},
		{"meta/ops", module + "meta/batch", false, false},
		{"meta/txn", module + "meta/namespace", false, true},
		{"meta/namespace", module + "meta/txn", false, false},
		{"meta/namespace", module + "meta/nsbucket", false, false},
		{"meta/nsbucket", module + "meta/txn", false, false},
		{"meta/nsbucket", module + "meta/nslog", false, false},
		{"meta/txn", module + "meta/nsbucket", false, false},
		{"meta/namespace", module + "meta/namespace/namespacetest", false, false},
		{"bbd", "github.com/nats-io/nats.go", false, false},
		{"bbd", "github.com/nats-io/nats.go", true, false},
		{"meta", "github.com/nats-io/nats-server/v2/server", false, false},
		{"meta/embedded", "github.com/nats-io/nats-server/v2/server", false, true},
		{"meta", "github.com/hashicorp/memberlist", false, false},
		{"meta/gossip", "github.com/hashicorp/memberlist", false, true},
		{"flusher/backing", "github.com/minio/minio-go/v7", false, false},
		{"flusher/backing/s3", "github.com/minio/minio-go/v7/pkg/credentials", false, true},
		{"flusher", "github.com/klauspost/compress/zstd", false, false},
		{"flusher/codec", "github.com/klauspost/compress/s2", false, true},
		{"bbd", "github.com/prometheus/client_golang/prometheus", false, false},
		{"bbd/metrics", "github.com/prometheus/client_golang/prometheus", false, true},
		{"bbd", "github.com/spf13/viper", false, false},
		{"cmd/bbctl", "github.com/spf13/viper", false, false},
		{"cmd/bbd/config", "github.com/spf13/viper", false, true},
		{"client", "github.com/spf13/cobra", false, false},
		{"cmd/bbctl", "github.com/spf13/cobra", false, true},
		{"client", "github.com/google/go-cmp/cmp", true, true},
		{"client", "github.com/google/go-cmp/cmp", false, false},
		{"internal/powertest", "github.com/hanwen/go-fuse/v2/fuse", false, true},
		{"cmd/bbmount/bufferfs", "github.com/hanwen/go-fuse/v2/fs", false, true},
		{"bbd", "github.com/hanwen/go-fuse/v2/fuse", true, false},
		{"cmd/bbd", module + "internal/powertest", false, false},
		{"client", "github.com/unknown/library", true, false},
	} {
		to, ours := strings.CutPrefix(c.to, module)
		if err := edge(c.from, to, ours, c.test); (err == nil) != c.allowed {
			t.Errorf("edge(%s → %s, test %v) = %v, allowed should be %v", c.from, c.to, c.test, err, c.allowed)
		}
	}
}

// TestImports reads the imports of every file, under any build constraints.
func TestImports(t *testing.T) {
	listed := map[string]bool{}
	for _, f := range unsafeFiles {
		listed[f] = false
	}
	files := 0
	for _, file := range goFiles(t) {
		files++
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		from, test := path.Dir(file), strings.HasSuffix(file, "_test.go")
		for _, spec := range parsed.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			to, ours := strings.CutPrefix(imported, module)
			if err := edge(from, to, ours, test); err != nil {
				t.Errorf("%s may not import %q: %v", file, imported, err)
			}
			if imported == "unsafe" && !ast.IsGenerated(parsed) {
				checkUnsafe(t, file, listed)
			}
		}
	}
	if files < 2 {
		t.Fatalf("found %d Go files: the test does not see the tree", files)
	}
	for f, used := range listed {
		if !used {
			t.Errorf("%s stands in unsafeFiles but does not import unsafe", f)
		}
	}
}

// checkUnsafe fails unless the file is listed and each use of unsafe is explained.
func checkUnsafe(t *testing.T, file string, listed map[string]bool) {
	t.Helper()
	if _, ok := listed[file]; !ok {
		t.Errorf("%s imports unsafe but does not stand in unsafeFiles", file)
		return
	}
	listed[file] = true
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		t.Error(err)
		return
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "unsafe" && !explained(fset, parsed, sel) {
			t.Errorf("%s: no comment just above says which rule makes this use of unsafe right", fset.Position(sel.Pos()))
		}
		return true
	})
}

// explained reports whether a comment ends in the line of a node or in one of the
// three before it.
func explained(fset *token.FileSet, file *ast.File, n ast.Node) bool {
	line := fset.Position(n.Pos()).Line
	return slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool {
		end := fset.Position(c.End()).Line
		return end <= line && end >= line-3
	})
}

// goFiles lists the module's Go files by their slash-separated paths.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || nested(name)):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go") && filepath.Dir(name) != ".":
			files = append(files, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// nested reports whether a folder is a module of its own.
func nested(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
