package slurm

import (
	_ "embed" // the Lua files
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var (
	//go:embed lua/directives.lua
	directivesLua string
	//go:embed lua/burst_buffer.lua
	burstBufferLua string
	//go:embed lua/job_submit.lua
	jobSubmitLua string
)

// The files that lie beside slurm.conf.
const (
	BurstBufferFile = "burst_buffer.lua"
	ConfigFile      = "burst_buffer.conf"
	SubmitFile      = "forebay_submit.lua"
)

// Files are the contents of the files beside slurm.conf, by name.
func (s *Settings) Files() map[string]string {
	fill := strings.NewReplacer("--@settings\n", s.lua(), "--@directives\n", directivesLua)
	return map[string]string{
		BurstBufferFile: fill.Replace(burstBufferLua),
		SubmitFile:      fill.Replace(jobSubmitLua),
		ConfigFile:      s.config(),
	}
}

// slurmTimeout is the longest timeout that Slurm accepts: 24 days, in seconds. At its end, it would
// drop unfinished stage-outs.
const slurmTimeout = 24 * 24 * 60 * 60

func (s *Settings) config() string {
	text := fmt.Sprintf(`# Made by "bbctl slurm install-lua".
Directive=%s
# After a failed stage-in, a job that is released begins with setup again; without this it
# would wait for ever.
Flags=TeardownFailure
# Slurm would drop data when they end. The limits that count are bbctl's.
StageInTimeout=%[2]d
StageOutTimeout=%[2]d
OtherTimeout=%[2]d
`, s.Prefixes[0], slurmTimeout)
	if s.Poll {
		text += "PollInterval=5\n"
	}
	return text
}

// SlurmConf are the lines that slurm.conf needs.
func (s *Settings) SlurmConf() string {
	return `BurstBufferType=burst_buffer/lua
JobSubmitPlugins=lua
`
}

// Install writes the files beside slurm.conf, the settings, and, unless there is another
// one, job_submit.lua. It returns the list of written files, and the steps that are left.
func (s *Settings) Install(confDir string) (said []string, err error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return nil, err
	}
	if err := s.Save(); err != nil {
		return nil, err
	}
	said = append(said, "wrote "+filepath.Join(s.Folder, settingsFile))
	files := s.Files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(confDir, name)
		if err := writeWhole(file, []byte(files[name]), 0o644); err != nil {
			return said, err
		}
		said = append(said, "wrote "+file)
	}
	submit := filepath.Join(confDir, "job_submit.lua")
	load := `dofile("` + filepath.Join(confDir, SubmitFile) + `")`
	switch text, err := os.ReadFile(submit); {
	case err == nil && strings.Contains(string(text), SubmitFile):
	case err == nil:
		said = append(said, submit+" is there already: add "+load+" to it, as "+SubmitFile+" says")
	case os.IsNotExist(err):
		if err := writeWhole(submit, []byte(load+"\n"), 0o644); err != nil {
			return said, err
		}
		said = append(said, "wrote "+submit)
	default:
		return said, err
	}
	return said, nil
}

// lua are the settings in the form of the Lua files.
func (s *Settings) lua() string {
	var profiles []string
	for _, name := range slices.Sorted(maps.Keys(s.Profiles)) {
		profiles = append(profiles, "["+luaString(name)+"] = "+luaString(s.Profiles[name]))
	}
	return fmt.Sprintf(`local settings = {
	bbctl = %s,
	folder = %s,
	words = %s,
	pools = %s,
	default_pool = %s,
	profiles = { %s },
	poll = %t,
	status_ids = %t,
}
`, luaList(s.Bbctl), luaString(s.Folder), luaList(s.Prefixes), luaList(s.Pools), luaString(s.Default), strings.Join(profiles, ", "), s.Poll, s.Poll)
}

func luaList(list []string) string {
	var quoted []string
	for _, v := range list {
		quoted = append(quoted, luaString(v))
	}
	return "{ " + strings.Join(quoted, ", ") + " }"
}

// luaString writes a string in the syntax of Lua, with bytes that are not plain as \ddd.
func luaString(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%03d`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
