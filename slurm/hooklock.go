package slurm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"forebay/internal/bb"
	"forebay/slurm/slurmctl"
)

// Slurm 22.05 saves the state of jobs every 5 seconds, and that of burst buffers every 30. A
// slurmctld that is killed in between finds a job "staging-in" when it is started again, without a
// record of its buffer. It treats the job as one with running hooks, and starts none. The same
// holds for a job that waits for the teardown of its last run. And a slurmctld that is started
// again begins the hooks of all jobs at once, of which slurmscriptd may hand one the pipe of
// another. It detects the end of that one only when both have ended. Nothing but scancel ends the
// first case, and Slurm reports none of them. A process that finds that no hook is at work for a
// job can cancel it:
//
//	folder/JOB.at    a lock that each hook holds while it works for the job. In it stands the
//	                 key of the job's latest lifetime, from before setup opens that

// lockSuffix ends the names of these files.
const lockSuffix = ".at"

// lockHook marks that a hook is at work for a job, until it ends or calls leave. A lock that
// cannot be acquired is no reason to fail.
func (h *Hooks) lockHook(job string) (leave func()) {
	if slurmctl.CheckID(job) != nil {
		return func() {}
	}
	f, err := os.OpenFile(h.lockFile(job), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		h.log("job %s: %v", job, err)
		return func() {}
	}
	touch := func() { _ = os.Chtimes(f.Name(), time.Time{}, time.Now()) }
	touch()
	// A process that checks it holds it for a moment.
	for range 100 {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		h.log("job %s: %v", job, err)
	}
	return func() {
		touch()
		f.Close()
	}
}

func (h *Hooks) lockFile(job string) string { return filepath.Join(h.Settings.Folder, job+lockSuffix) }

// rememberKey records a job's latest lifetime.
func (h *Hooks) rememberKey(job, key string) error {
	// Not another file, since this one's lock is held.
	err := os.WriteFile(h.lockFile(job), []byte(key+"\n"), 0o644)
	return bb.Wrap("setup", job, err)
}

// rememberedKey returns the key that rememberKey recorded last for a job's id, or "" if there is
// none.
func (h *Hooks) rememberedKey(job string) string {
	text, _ := os.ReadFile(h.lockFile(job))
	key := strings.TrimSpace(string(text))
	if bb.CheckBufferName(key) != nil {
		return ""
	}
	return key
}

// hookRuns reports whether a hook is at work for a job, or has been within a time, since newer
// releases of Slurm ask for its progress every few seconds. If that is unknown, it counts as at
// work.
func (h *Hooks) hookRuns(job string, within time.Duration) bool {
	f, err := os.Open(h.lockFile(job))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	info, err := f.Stat()
	return err != nil || time.Since(info.ModTime()) < within || syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// waitsForHook reports whether a job waits for a hook's work, and the stage that Slurm is at.
func waitsForHook(j *slurmctl.Job) bool {
	if j.State != "PENDING" {
		return false // of jobs that are over, lifetimes are ended
	}
	switch j.Buffers {
	case "staging-in", "teardown", "post-run", "staging-out":
		return true
	}
	return false
}

// abandonedNote is the note for the user of such a job.
const abandonedNote = "Slurm has lost track of this job's buffer since slurmctld was started again, and may never go on with it: scancel the job, and submit it again"

// abandoned returns the jobs that have waited for quiet for a hook that does not run, and the state
// for the next check. since is the time of the first such check of each, by id and time of
// submission.
func abandoned(jobs []slurmctl.Job, hookRuns func(job string) bool, since map[string]time.Time, now time.Time, quiet time.Duration) (list []*slurmctl.Job, next map[string]time.Time) {
	next = map[string]time.Time{}
	for i := range jobs {
		j := &jobs[i]
		if !waitsForHook(j) || hookRuns(j.ID) {
			continue
		}
		run := j.ID + " " + j.Submitted + " " + j.Buffers
		first, seen := since[run]
		if !seen {
			first = now
		}
		if next[run] = first; now.Sub(first) >= quiet {
			list = append(list, j)
		}
	}
	return list, next
}

// dropFiles removes the files of jobs without a record in Slurm, if they are older.
func (h *Hooks) dropFiles(known map[string]*slurmctl.Job, before time.Time) (err error) {
	for _, suffix := range []string{envSuffix, lockSuffix} {
		files, _ := filepath.Glob(filepath.Join(h.Settings.Folder, "*"+suffix))
		for _, file := range files {
			job := strings.TrimSuffix(filepath.Base(file), suffix)
			info, bad := os.Stat(file)
			if slurmctl.CheckID(job) == nil && known[job] == nil && bad == nil && info.ModTime().Before(before) {
				err = errors.Join(err, removeIfThere(file))
			}
		}
	}
	return err
}
