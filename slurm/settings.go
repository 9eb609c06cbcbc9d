package slurm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/slurm/directive"
)

// Settings are a site's choices for burst_buffer/lua. They lie in the folder, as
// settings.json, beside the files of jobs.
type Settings struct {
	Folder   string            `json:"-"`                      // an absolute path; with two controllers, where both can read it
	Cluster  string            `json:"cluster"`                // ClusterName: two may share the daemons
	Prefixes []string          `json:"words"`                  // BB, or DW
	Pools    []string          `json:"pools"`                  // memory, disk: those that jobs may request
	Default  string            `json:"default_pool,omitempty"` // that job_submit.lua adds; "": none
	Profiles map[string]string `json:"profiles,omitempty"`     // options by name
	Env      []string          `json:"env,omitempty"`          // NAME=value besides, for every job with a buffer
	Bbctl    []string          `json:"bbctl"`                  // the command with its options: socket, key file
	Poll     bool              `json:"poll"`                   // Slurm 24.05 and later request the progress of a stage
	Granule  int64             `json:"granularity"`            // bytes: capacities are rounded up to it
	// StageInLimit is the number of seconds for which, without answers of its store or the daemons,
	// a stage-in is tried. 0 means an hour.
	StageInLimit int `json:"stage_in_limit,omitempty"`
}

const defaultStageInLimit = time.Hour

func (s *Settings) stageInLimit() time.Duration {
	if s.StageInLimit == 0 {
		return defaultStageInLimit
	}
	return time.Duration(s.StageInLimit) * time.Second
}

func (s *Settings) options() directive.Options {
	return directive.Options{Prefixes: s.Prefixes, NeedPool: true, Pools: s.Pools, Profiles: s.Profiles}
}

const settingsFile = "settings.json"

// ReadSettings reads the settings of a folder.
func ReadSettings(folder string) (Settings, error) {
	file := filepath.Join(folder, settingsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		var e *bb.Error
		if errors.As(bb.Wrap("settings", file, err), &e) {
			return Settings{}, e.WithRemedy("run bbctl slurm install-lua")
		}
	}
	s := Settings{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, &bb.Error{Kind: bb.Invalid, Op: "settings", Path: file, Err: err}
	}
	s.Folder = folder
	return s, s.Validate()
}

// Save writes the settings into their folder.
func (s *Settings) Save() error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(s.Folder, settingsFile), append(text, '\n'), 0o644)
}

// Validate names all that is wrong.
func (s *Settings) Validate() error {
	var wrong []string
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if !filepath.IsAbs(s.Folder) {
		bad("the folder %q is no absolute path", s.Folder)
	}
	if s.Cluster == "" {
		bad("the cluster has no name")
	}
	if len(s.Prefixes) != 1 || s.Prefixes[0] != "BB" && s.Prefixes[0] != "DW" {
		bad("the directive must be BB or DW") // Slurm has one
	}
	if len(s.Pools) == 0 {
		bad("there are no pools")
	}
	for _, p := range s.Pools {
		if p != "memory" && p != "disk" {
			bad("pool %q is neither memory nor disk", p)
		}
	}
	if s.Default != "" && !strings.Contains(" "+strings.Join(s.Pools, " ")+" ", " "+s.Default+" ") {
		bad("the default pool %q is not among the pools", s.Default)
	}
	if len(s.Bbctl) == 0 {
		bad("the command of bbctl is not set")
	}
	if s.Granule < 1<<20 || s.Granule > 1<<40 {
		bad("the granularity %d is not between 1 MiB and 1 TiB", s.Granule)
	}
	if s.StageInLimit < 0 {
		bad("stage_in_limit is negative")
	}
	for _, e := range s.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || !directive.PlainName(name) || strings.ContainsAny(e, "\n\r\x00") {
			bad("%q is not NAME=value", e)
		}
	}
	for name, text := range s.Profiles {
		if _, problems := directive.Parse([]byte("#BB jobbb profile="+name+"\n"), directive.Options{Profiles: s.Profiles}); problems.Err() != nil {
			bad("profile %s (%s): %s", name, text, problems.Errors()[0].Reason)
		}
	}
	if len(wrong) > 0 {
		return bb.E(bb.Invalid, "settings", s.Folder, "invalid: "+strings.Join(wrong, "; "))
	}
	return nil
}
