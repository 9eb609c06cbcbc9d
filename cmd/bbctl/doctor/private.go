package doctor

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/status"
	"forebay/internal/bb"
)

// places are the paths of a node's daemon that jobs have to see. "" means that it is unknown.
type places struct{ memory, socket string }

func placesOf(ctx context.Context, c *client.Client) places {
	var s status.Daemon
	if text, err := admin.Status(ctx, c, ""); err != nil || json.Unmarshal(text, &s) != nil {
		return places{}
	}
	socket, _ := strings.CutPrefix(c.Server().Address, "unix://")
	return places{s.Memory.Dir, socket}
}

// mountOption finds the folder of jobs' mounts in a prolog.
var mountOption = regexp.MustCompile(`--mount[= ]'?([^' \n]+)`)

// privateFindings name the paths of a daemon that Slurm hides from jobs, if it gives each a /tmp and a /dev/shm of its own. A
// prolog's mounts are made before that, and are seen elsewhere.
func privateFindings(c map[string]string, seen places, read func(string) ([]byte, error)) (all []finding) {
	plugin := c["JobContainerType"]
	if plugin != "job_container/tmpfs" {
		plugin = c["NamespaceType"] // of newer releases
	}
	if !strings.HasSuffix(plugin, "/tmpfs") {
		return nil
	}
	mounts := ""
	if text, err := read(c["Prolog"]); err == nil {
		if found := mountOption.FindSubmatch(text); found != nil {
			mounts = string(found[1])
		}
	}
	for _, p := range []struct{ what, path, fix string }{
		{"the daemon's memory", seen.memory, "memory.mount: auto for a daemon that root runs, or memory.dir on a tmpfs elsewhere, as below /run"},
		{"the daemon's socket", seen.socket, "listen.socket: /run/forebay/bbd.sock"},
		{"the mounts of their buffers", mounts, "bbctl slurm install --mount /bb"},
	} {
		if bb.Within(p.path, "/tmp") || bb.Within(p.path, "/dev/shm") {
			all = append(all, finding{"slurm", isFailed, plugin + " hides " + p.what + " from jobs: " + p.path, p.fix})
		}
	}
	if len(all) == 0 {
		all = append(all, finding{"slurm", isOK, plugin + " hides nothing of the daemon from jobs", ""})
	}
	return all
}
