package lustre

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// A client has an import for each target: its side of the connection. Its state is in a file, which is root's
// in most releases (lprocfs_import_seq_show in lustre/obdclass/lprocfs_status.c; ptlrpc_import_state_name):
//
//	import:
//	    name: scratch-OST0001-osc-ffff9e5c41a3b000
//	    target: scratch-OST0001_UUID
//	    state: DISCONN
//	    …
//	    import_flags: [ replayable, pingable ]
//
// Where it lies has changed: below /proc/fs/lustre up to 2.11, then below /sys/kernel/debug/lustre.
var importsAt = []string{"sys/kernel/debug/lustre", "sys/fs/lustre", "proc/fs/lustre"}

// SilentImports returns the targets to which this client has no connection now, with the state of each, such as
// "scratch-OST0001 (DISCONN)", sorted. It returns none where the states cannot be read.
func SilentImports() []string { return silentImports(os.DirFS("/")) }

const maxImport = 64 << 10 // bytes of a file that are read

func silentImports(root fs.FS) (targets []string) {
	for _, at := range importsAt {
		for _, kind := range []string{"osc", "mdc"} {
			files, _ := fs.Glob(root, path.Join(at, kind, "*", "import")) // the pattern is right
			for _, name := range files {
				text, err := fs.ReadFile(root, name)
				if err != nil || len(text) > maxImport {
					continue
				}
				if t := silentImport(string(text)); t != "" && !slices.Contains(targets, t) {
					targets = append(targets, t)
				}
			}
		}
	}
	slices.Sort(targets)
	return targets
}

// silentImport returns the target of an import that is not connected, and its state. The target is "" if it is
// connected, or was idle and connects with the next request, or an administrator has not used it yet.
func silentImport(text string) string {
	value := func(key string) string {
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+":"); ok {
				return strings.TrimSpace(v)
			}
		}
		return ""
	}
	target, state := strings.TrimSuffix(value("target"), "_UUID"), value("state")
	if strings.Contains(value("import_flags"), "deactive") {
		state = "deactivated"
	}
	switch state {
	case "FULL", "IDLE", "NEW", "":
		return ""
	}
	if target == "" {
		return ""
	}
	return target + " (" + state + ")"
}

// Silent returns the targets that lfs or the imports name, each once, with its state where that is known.
func Silent(lfs, imports []string) (targets []string) {
	targets = slices.Clone(imports)
	for _, t := range lfs {
		if !slices.ContainsFunc(imports, func(i string) bool { return strings.HasPrefix(i, t+" (") }) {
			targets = append(targets, t)
		}
	}
	slices.Sort(targets)
	return targets
}
