package lustre

import (
	"context"
	"os/exec"
	"slices"
	"strings"
)

// CheckServers runs "lfs check servers", which pings every target that this node's Lustre mounts
// use, and returns its output. It fails if there is no lfs, and may hang in the kernel even after
// the end of ctx. An error of lfs is no failure, since lfs exits with one if a target does not
// answer.
func CheckServers(ctx context.Context) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "lfs", "check", "servers").CombinedOutput()
	if _, exited := err.(*exec.ExitError); exited && ctx.Err() == nil {
		err = nil
	}
	return out, err
}

// SilentTargets returns the targets that do not answer by the output of "lfs check servers", sorted. Its lines are,
// by lustre/utils/liblustreapi.c (do_target_check):
//
//	NAME active.
//	NAME inactive.
//	error: check 'NAME': REASON
//
// NAME is that of the device of this client, such as scratch-OST0001-osc-ffff9e5c41a3b000. Returned is the part that
// names the target, scratch-OST0001.
func SilentTargets(out []byte) (targets []string) {
	for line := range strings.Lines(string(out)) {
		name, ok := strings.CutSuffix(strings.TrimRight(line, "\n"), " inactive.")
		if !ok {
			_, rest, isError := strings.Cut(line, "error: check '")
			if name, _, ok = strings.Cut(rest, "'"); !ok || !isError {
				continue
			}
		}
		if i := max(strings.LastIndex(name, "-osc-"), strings.LastIndex(name, "-mdc-")); i > 0 {
			name = name[:i]
		}
		if name != "" && !slices.Contains(targets, name) {
			targets = append(targets, name)
		}
	}
	slices.Sort(targets)
	return targets
}
