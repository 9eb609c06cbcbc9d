package slurm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"forebay/internal/bb"
)

// JobInfo is what Slurm knows of a job (scontrol show job).
type JobInfo struct {
	ID        string
	ArrayJob  string // "": it is in no array
	ArrayTask string
	Name      string
	User      string
	UID, GID  uint32
	WorkDir   string
	State     string // RUNNING, COMPLETING, STAGE_OUT, …
	Submitted string // as Slurm writes it: it changes when the job is requeued
	Restarts  int
	ExitCode  string        // "0:0" is status and signal
	RunTime   time.Duration // so far
	TimeLimit time.Duration // 0: none
	Buffers   string        // BurstBufferState; "": none

	AdminComment string
}

// ParseJobs reads what "scontrol show job" prints: records that a blank line ends, of
// fields NAME=value. A value may hold blanks where it is the line's last.
func ParseJobs(text string) []JobInfo {
	var jobs []JobInfo
	for record := range strings.SplitSeq(text, "\n\n") {
		j := JobInfo{}
		for line := range strings.Lines(record) {
			j.line(strings.TrimSpace(line))
		}
		if j.ID != "" {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// line reads one line of a record.
func (j *JobInfo) line(line string) {
	for line != "" {
		name, rest, ok := strings.Cut(line, "=")
		if !ok {
			return
		}
		value := rest
		// These are the last of their lines, and the user's text.
		if name != "JobName" && name != "WorkDir" && name != "AdminComment" {
			value, line, _ = strings.Cut(rest, " ")
			line = strings.TrimLeft(line, " ")
		} else {
			line = ""
		}
		j.field(name, value)
	}
}

func (j *JobInfo) field(name, value string) {
	switch name {
	case "JobId":
		j.ID = value
	case "ArrayJobId":
		j.ArrayJob = value
	case "ArrayTaskId":
		j.ArrayTask = value
	case "JobName":
		j.Name = value
	case "UserId":
		j.User, j.UID = nameAndID(value)
	case "GroupId":
		_, j.GID = nameAndID(value)
	case "WorkDir":
		j.WorkDir = value
	case "JobState":
		j.State = value
	case "SubmitTime":
		j.Submitted = value
	case "Restarts":
		j.Restarts, _ = strconv.Atoi(value)
	case "ExitCode":
		j.ExitCode = value
	case "RunTime":
		j.RunTime = parseTime(value)
	case "TimeLimit":
		j.TimeLimit = parseTime(value)
	case "AdminComment":
		j.AdminComment = strings.TrimSpace(value)
	case "BurstBufferState":
		j.Buffers = value
	}
}

// nameAndID splits "ann(1000)".
func nameAndID(text string) (string, uint32) {
	name, rest, _ := strings.Cut(text, "(")
	id, _ := strconv.ParseUint(strings.TrimSuffix(rest, ")"), 10, 32)
	return name, uint32(id)
}

// parseTime reads [DAYS-]HH:MM:SS; anything else, such as UNLIMITED, is 0.
func parseTime(text string) time.Duration {
	var days, h, m, s int
	clock := text
	if d, rest, ok := strings.Cut(text, "-"); ok {
		var err error
		if days, err = strconv.Atoi(d); err != nil {
			return 0
		}
		clock = rest
	}
	if n, err := fmt.Sscanf(clock, "%d:%d:%d", &h, &m, &s); err != nil || n != 3 || days < 0 || h < 0 || m < 0 || s < 0 {
		return 0
	}
	return time.Duration(days)*24*time.Hour + time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second
}

// over reports whether Slurm is done with a job but for its buffer. A job that waits,
// runs, or whose Epilogs do, is not.
func (j *JobInfo) over() bool {
	switch j.State {
	case "STAGE_OUT", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED":
		return true
	}
	return false
}

// endedWell reports whether a job that is over did what it should: its script exited
// with 0, and not because its time was up.
func (j *JobInfo) endedWell() bool {
	return j.ExitCode == "0:0" && (j.TimeLimit == 0 || j.RunTime < j.TimeLimit)
}

// key is what this run of the job is known by.
func (j *JobInfo) key(cluster string) string { return RunKey(cluster, j.ID, j.Restarts, j.Submitted) }

// RunKey is what a run of a job is known by, a name of a buffer. Slurm uses the ids of jobs
// again when slurmctld has lost its state, and that of one that is requeued: when it was
// submitted and how often it was started tell its runs apart. All nodes of one make the
// same of it.
func RunKey(cluster, job string, restarts int, submitted string) string {
	h := sha256.New()
	for _, part := range []string{cluster, job, strconv.Itoa(restarts), submitted} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return JobBufferPrefix + job + "-" + hex.EncodeToString(h.Sum(nil)[:5])
}

// vars are what symbols stand for in a job.
func (j *JobInfo) vars(buffer string) *Vars {
	return &Vars{
		Buffer: buffer, Job: j.ID, ArrayJob: j.ArrayJob, ArrayTask: j.ArrayTask, User: j.User, UID: j.UID, GID: j.GID,
		Name: j.Name, WorkDir: j.WorkDir,
	}
}

// CheckJobID refuses what cannot be a job's id, before it becomes a part of a file's name
// or of a command line.
func CheckJobID(id string) error {
	if n, err := strconv.ParseUint(id, 10, 32); err != nil || n == 0 || id[0] == '0' {
		return bb.E(bb.Invalid, "job", fmt.Sprintf("%q", id), "is no job's id").WithRemedy("give --job and a number")
	}
	return nil
}
