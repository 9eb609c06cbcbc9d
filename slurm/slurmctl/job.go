package slurmctl

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"forebay/internal/bb"
)

// Job is the record that slurmctld has of a job (scontrol(1), show job).
type Job struct {
	ID        string
	ArrayJob  string // "": it is in no array
	ArrayTask string // a number, or the numbers of tasks that wait
	Name      string
	User      string
	UID, GID  uint32
	WorkDir   string
	State     string // RUNNING, COMPLETING, STAGE_OUT, …
	Submitted string // in Slurm's form; it changes when the job is requeued
	Restarts  int
	Batch     bool          // it has a script
	ExitCode  string        // "0:0" is status and signal
	RunTime   time.Duration // so far
	TimeLimit time.Duration // 0: none

	Request string // BurstBuffer: the directives as Slurm has read them, or --bb; lines
	Buffers string // BurstBufferState, of a plugin's buffer; "": none

	Comment      string // the user's
	AdminComment string
}

// whole are the fields that are the last of their lines and hold text of the user's. A value may
// hold blanks, and text that resembles other fields.
var whole = map[string]bool{
	"JobName": true, "WorkDir": true, "Comment": true, "AdminComment": true, "SystemComment": true, "BurstBuffer": true,
	"Command": true, "StdErr": true, "StdIn": true, "StdOut": true, "Network": true, "Extra": true,
}

// ParseJobs reads the output of "scontrol show job": records that a blank line ends, of fields
// NAME=value.
func ParseJobs(text string) []Job {
	var jobs []Job
	for record := range strings.SplitSeq(text, "\n\n") {
		if j := parseRecord(record); j.ID != "" {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func parseRecord(record string) (j Job) {
	request := false // the lines of one follow
	for line := range strings.Lines(record) {
		line = strings.TrimSpace(line)
		if request = request && line != "" && !isField(line); request {
			j.Request += "\n" + line
			continue
		}
		request = strings.HasPrefix(line, "BurstBuffer=")
		j.line(line)
	}
	return j
}

// isField reports whether a line is NAME=…, and not one of a request of several lines.
func isField(line string) bool {
	name, _, ok := strings.Cut(line, "=")
	return ok && name != "" && !strings.ContainsAny(name, "# \t")
}

func (j *Job) line(line string) {
	for line != "" {
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return
		}
		if line = ""; !whole[name] {
			value, line, _ = strings.Cut(value, " ")
			line = strings.TrimLeft(line, " ")
		}
		j.field(name, value)
	}
}

func (j *Job) field(name, value string) {
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
	case "BatchFlag":
		j.Batch = value == "1"
	case "ExitCode":
		j.ExitCode = value
	case "RunTime":
		j.RunTime = parseTime(value)
	case "TimeLimit":
		j.TimeLimit = parseTime(value)
	case "Comment":
		j.Comment = strings.TrimSpace(value)
	case "AdminComment":
		j.AdminComment = strings.TrimSpace(value)
	case "BurstBuffer":
		j.Request = value
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

// parseTime reads [DAYS-]HH:MM:SS. Anything else, such as UNLIMITED, is 0.
func parseTime(text string) time.Duration {
	var days, h, m, s int64
	clock := text
	if d, rest, ok := strings.Cut(text, "-"); ok {
		var err error
		if days, err = strconv.ParseInt(d, 10, 32); err != nil {
			return 0
		}
		clock = rest
	}
	if n, err := fmt.Sscanf(clock, "%d:%d:%d", &h, &m, &s); err != nil || n != 3 {
		return 0
	}
	if days < 0 || days > 36500 || h < 0 || h > 1000 || m < 0 || m > 60 || s < 0 || s > 60 {
		return 0
	}
	return time.Duration(((days*24+h)*60+m)*60+s) * time.Second
}

// Over reports whether Slurm is done with a job but for its buffer. A job that waits, runs, or has
// running Epilogs is not.
func (j *Job) Over() bool {
	switch j.State {
	case "STAGE_OUT", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED":
		return true
	}
	return false
}

// Active reports whether a job has nodes, or Slurm is staging its buffer out. A job without a
// record (nil) is not.
func (j *Job) Active() bool {
	if j == nil {
		return false
	}
	switch j.State {
	case "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT":
		return true
	}
	return false
}

// Succeeded reports whether a job that is over did its work. Its script exited with 0, and not
// because its time was up.
func (j *Job) Succeeded() bool {
	return j.ExitCode == "0:0" && (j.TimeLimit == 0 || j.RunTime < j.TimeLimit)
}

// Ref is the name by which Slurm's commands take this job alone. The id of one task of an array is
// that of the array too.
func (j *Job) Ref() string {
	if _, err := strconv.Atoi(j.ArrayTask); err == nil {
		return j.ArrayJob + "_" + j.ArrayTask
	}
	return j.ID
}

// CheckID refuses text that cannot be a job's id, before it becomes a part of a file's name
// or of a command line.
func CheckID(id string) error {
	if n, err := strconv.ParseUint(id, 10, 32); err != nil || n == 0 || id[0] == '0' {
		return bb.E(bb.Invalid, "job", fmt.Sprintf("%q", id), "is no job's id").WithRemedy("give --job and a number")
	}
	return nil
}
