package slurm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

// RunKey is the key of a run of a job, a name of a buffer. Slurm uses the ids of jobs again when
// slurmctld has lost its state, and the id of a requeued one. The times of submission and the
// number of starts distinguish its runs. All nodes of a run compute the same key.
func RunKey(cluster, job string, restarts int, submitted string) string {
	h := sha256.New()
	for _, part := range []string{cluster, job, strconv.Itoa(restarts), submitted} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return directive.JobBufferPrefix + job + "-" + hex.EncodeToString(h.Sum(nil)[:5])
}

// IsRunKey reports whether a name may be that of a run, which no other buffer has.
func IsRunKey(name string) bool { return strings.HasPrefix(name, directive.JobBufferPrefix) }

// keyOf is the key of the run of a job that Slurm describes.
func keyOf(j *slurmctl.Job, cluster string) string {
	return RunKey(cluster, j.ID, j.Restarts, j.Submitted)
}

// varsOf are the values of symbols in a job.
func varsOf(j *slurmctl.Job, buffer string) *directive.Vars {
	return &directive.Vars{
		Buffer: buffer, Job: j.ID, ArrayJob: j.ArrayJob, ArrayTask: j.ArrayTask, User: j.User, UID: j.UID, GID: j.GID,
		Name: j.Name, WorkDir: j.WorkDir,
	}
}
