package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Machine describes where a report was made.
type Machine struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	Memory     int64  `json:"memory"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Daemon     string `json:"daemon"`
	Regions    string `json:"regions"` // the memory that limits were measured with
	Store      string `json:"store"`   // the file system that was flushed to
	When       string `json:"when"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, %d processors, %s of memory, Linux %s, %s, %s; regions: %s; --dir on %s",
		m.Processor, m.Processors, quantity(float64(m.Memory), Bytes), m.Kernel, m.Go, m.Daemon, dash(m.Regions), m.Store)
}

// describeMachine says where the report was made. Regions and daemon are those of the
// rows that were measured.
func describeMachine(e *env) Machine {
	m := Machine{
		Processor: processorName(), Processors: runtime.NumCPU(), Go: runtime.Version(),
		Daemon: "no daemon", Regions: e.regions, Store: fileSystem(e.store),
		When: time.Now().UTC().Format(time.RFC3339),
	}
	if e.version != "" {
		m.Daemon = e.version
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// fileSystem names the file system of a folder (statfs(2)).
func fileSystem(dir string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "unknown: " + bb.KindOf(err).String()
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC:
		return "tmpfs (memory, no disk)"
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case 0x0BD00BD0: // not in package unix: LL_SUPER_MAGIC of Lustre
		return "lustre"
	default:
		return fmt.Sprintf("type %#x", fs.Type)
	}
}
