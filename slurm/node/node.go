// Package node is the way to buffers through Slurm's prolog and epilog. It carries out, on a
// compute node, the requests of those scripts, as a client of the node's daemon. It must never
// depend on how daemons keep bytes or the namespace, and never keep a node from its next job.
package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm"
	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

// Config is a site's choices, by the flags in its prolog and epilog.
type Config struct {
	// Dir is where prologs leave notes for epilogs and tasks. Only root may write it.
	Dir             string
	Socket          string   // in the environment of jobs; "": that of the node's daemon
	Feature         string   // of nodes (--constraint) that gives jobs a buffer; "": none does
	Default         string   // the options of the buffer that jobs with the feature get: "type=scratch capacity=…"
	FeatureRequired bool     // requests to slurmctld are only about jobs with the feature
	Prefixes        []string // that make lines directives: BB, DW

	Mounts string // below which each job's buffer is mounted, root's; "": none is
	// Mount mounts a buffer on a directory, and returns when the mount serves.
	Mount func(ctx context.Context, buffer, dir string) error

	StartTimeout time.Duration // how long the daemon may take until it serves
	Epilog       time.Duration // how long an epilog may take
	// Log takes lines for slurmd's log.
	Log func(format string, args ...any)
}

// DefaultDir is the default of Config.Dir.
const DefaultDir = "/run/forebay/slurm"

// DefaultConfig returns the default settings.
func DefaultConfig() Config {
	return Config{
		Dir: DefaultDir, Feature: "forebay", Default: "type=scratch", Prefixes: []string{"BB"},
		StartTimeout: 30 * time.Second, Epilog: 5 * time.Second, Log: func(string, ...any) {},
	}
}

// Env is Slurm's environment of a prolog or an epilog (prolog_epilog, "Environment Variables").
type Env struct {
	Cluster  string
	Job      string
	User     string
	UID, GID uint32
	Nodes    int
	Features string // that the job requests: an expression
	Restarts int
	Failed   bool // in an epilog: the job failed
}

// ReadEnv reads the environment.
func ReadEnv(getenv func(string) string) (Env, error) {
	e := Env{Cluster: getenv("SLURM_CLUSTER_NAME"), Job: getenv("SLURM_JOB_ID"), User: getenv("SLURM_JOB_USER"), Features: getenv("SLURM_JOB_CONSTRAINTS")}
	number := func(name string) (uint32, error) {
		n, err := strconv.ParseUint(getenv(name), 10, 32)
		if err != nil {
			err = bb.E(bb.Invalid, "environment", name, fmt.Sprintf("%q is no number", getenv(name))).WithRemedy("this is for Slurm's prolog and epilog: see bbctl slurm install")
		}
		return uint32(n), err
	}
	var err error
	if e.UID, err = number("SLURM_JOB_UID"); err != nil {
		return e, err
	}
	if _, err = number("SLURM_JOB_ID"); err != nil {
		return e, err
	}
	// These are not everywhere in each release.
	if e.GID, err = number("SLURM_JOB_GID"); err != nil {
		e.GID = e.UID
	}
	nodes, _ := number("SLURM_JOB_NUM_NODES")
	restarts, _ := number("SLURM_JOB_RESTART_COUNT")
	e.Nodes, e.Restarts = int(nodes), int(restarts)
	code := getenv("SLURM_JOB_EXIT_CODE")
	e.Failed = code != "" && code != "0"
	return e, nil
}

// wants reports whether a job requests a feature. The expression may be of any shape. The feature's
// word in it counts.
func (e *Env) wants(feature string) bool {
	word := func(r rune) bool { return strings.ContainsRune("&|,[]()*:!", r) }
	return feature != "" && slices.Contains(strings.FieldsFunc(e.Features, word), feature)
}

// lifetime returns the request to the daemon for a job's directives.
func lifetime(e *Env, j *slurmctl.Job, r *directive.Request, v *directive.Vars) (admin.Lifetime, []admin.BufferSpec, error) {
	l := admin.Lifetime{
		Key: v.Buffer, Cluster: e.Cluster, Job: e.Job, User: e.User, UID: e.UID, GID: e.GID, ExpectedNodes: e.Nodes,
	}
	create, err := r.Fill(&l, v)
	l.Due = due(j, l.Warn, time.Now())
	return l, create, err
}

// vars are the values of symbols in a job.
func vars(e *Env, j *slurmctl.Job) *directive.Vars {
	return &directive.Vars{
		Buffer: slurm.RunKey(e.Cluster, e.Job, e.Restarts, j.Submitted), Job: e.Job, ArrayJob: j.ArrayJob, ArrayTask: j.ArrayTask,
		User: e.User, UID: e.UID, GID: e.GID, Name: j.Name, WorkDir: j.WorkDir,
	}
}

func (c *Config) file(job, suffix string) string { return filepath.Join(c.Dir, job+suffix) }
