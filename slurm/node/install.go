package node

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"forebay/internal/bb"
)

// Wrapper is a script that Slurm calls, or the unit.
type Wrapper struct {
	Name string // of the file
	Key  string // in slurm.conf; "": of the unit
	Text string
}

// UnitName is the service that looks after jobs.
const UnitName = "forebay-slurm-watch.service"

// Unit is the systemd unit of nodes. Slurm has HealthCheckProgram, which would do it on each node,
// but sites have one of their own. cron is not everywhere.
func Unit(bbctl, path string) Wrapper {
	const text = `# Made by "bbctl slurm install"; changes here are overwritten by the next.
[Unit]
Description=Keeps Forebay in step with Slurm
After=network-online.target forebay-bbd.service

[Service]
Environment=PATH=%s
ExecStart=%s slurm watch
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
`
	return Wrapper{Name: UnitName, Text: fmt.Sprintf(text, path, strings.ReplaceAll(quoteUnit(bbctl), "%", "%%"))}
}

// quoteUnit makes a word of a command line for systemd (systemd.service, "Command lines").
func quoteUnit(word string) string {
	if !strings.ContainsAny(word, " \t\"'\\;$") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `$$`).Replace(word) + `"`
}

// Wrappers are the scripts that call a bbctl with a site's flags. Slurm sets no PATH for
// prologs, and a bbctl that is missing must not keep a node, or a job's end, from anything
// that does not need it.
func Wrappers(bbctl, path string, flags, taskFlags []string) []Wrapper {
	call := func(verb string, flags []string) string {
		return quote(append([]string{bbctl, "slurm", verb}, flags...))
	}
	const head = "#!/bin/sh\n# Made by \"bbctl slurm install\"; changes here are overwritten by the next.\nPATH=%s\nexport PATH\n"
	script := func(format string, args ...any) string {
		return fmt.Sprintf(head, quote([]string{path})) + fmt.Sprintf(format, args...)
	}
	return []Wrapper{
		{"prolog", "Prolog", script("exec %s\n", call("prolog", flags))},
		{"epilog", "Epilog", script("%s\nexit 0\n", call("epilog", flags))},
		{"task-prolog", "TaskProlog", script("%s\nexit 0\n", call("task-prolog", taskFlags))},
		{"task-epilog", "TaskEpilog", script("%s\nexit 0\n", call("task-epilog", taskFlags))},
	}
}

// quote makes a command line for sh(1).
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		plain := w != "" && !strings.ContainsFunc(w, func(r rune) bool {
			return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-", r)
		})
		if quoted[i] = w; !plain {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// SlurmConf are the lines that slurm.conf needs.
func SlurmConf(dir string, wrappers []Wrapper, feature string) string {
	var b strings.Builder
	for _, w := range wrappers {
		fmt.Fprintf(&b, "%s=%s\n", w.Key, filepath.Join(dir, w.Name))
	}
	// Without Alloc, a prolog runs where the first step starts, and the epilog on all nodes.
	b.WriteString("PrologFlags=Alloc\n")
	if feature != "" {
		fmt.Fprintf(&b, "# and at each NodeName: Features=%s\n", feature)
	}
	return b.String()
}

// Install writes the scripts, and the unit, into a folder, and returns their paths.
func Install(dir string, wrappers []Wrapper) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, bb.Wrap("slurm install", dir, err)
	}
	for _, w := range wrappers {
		path := filepath.Join(dir, w.Name)
		temporary := path + ".new"
		mode := fs.FileMode(0o755)
		if w.Key == "" {
			mode = 0o644
		}
		if err := os.WriteFile(temporary, []byte(w.Text), mode); err != nil {
			return paths, bb.Wrap("slurm install", path, err)
		}
		if err := os.Rename(temporary, path); err != nil {
			return paths, bb.Wrap("slurm install", path, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
