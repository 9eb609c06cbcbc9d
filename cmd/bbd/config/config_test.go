package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"forebay/internal/bb"
)

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bbd.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func load(t *testing.T, text string) (Config, Problems) {
	t.Helper()
	c, err := Load(Source{Base: Default(), File: write(t, text)})
	var p Problems
	if err != nil && (!errors.As(err, &p) || !errors.Is(err, bb.Invalid)) {
		t.Fatalf("Load: %v", err)
	}
	return c, p
}

func TestDefaultsRoundTrip(t *testing.T) {
	c, problems := load(t, YAML(Default()))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := Default()
	want.Name, _ = os.Hostname()
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestDevIsValid(t *testing.T) {
	c := Dev("/tmp/forebay-dev")
	if p := c.Validate(); len(p) > 0 {
		t.Error(p)
	}
}

// TestFieldsAreDistinct catches a row of the table that points at another's value.
func TestFieldsAreDistinct(t *testing.T) {
	var c Config
	seen := map[any]string{}
	for _, f := range fields {
		p := f.value(&c)
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s are the same value", f.key, other)
		}
		seen[p] = f.key
		if f.usage == "" || strings.Contains(f.usage, "\n") {
			t.Errorf("%s: usage %q", f.key, f.usage)
		}
	}
}

func TestPriority(t *testing.T) {
	file := write(t, "flush: {workers: 2, dirty_age: 1m, limit: 1MB}\n")
	t.Setenv("FOREBAY_FLUSH_WORKERS", "3")
	t.Setenv("FOREBAY_FLUSH_DIRTY_AGE", "2m")
	flags := pflag.NewFlagSet("bbd", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--flush-workers=4", "--insecure"}); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Source{Base: Default(), File: file, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	if c.Flush.Workers != 4 || c.Flush.DirtyAge != 2*time.Minute || c.Flush.Limit != Bytes(1e6) || !c.Insecure {
		t.Errorf("flag, variable and file gave %+v, insecure %v", c.Flush, c.Insecure)
	}
}

func TestEveryKeyCanBeSetInTheEnvironment(t *testing.T) {
	for _, f := range fields {
		if strings.HasPrefix(f.key, "lustre.") {
			continue
		}
		t.Setenv(f.env(), "\x01")
	}
	_, err := Load(Source{Base: Default(), File: write(t, "")})
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("Load: %v", err)
	}
	for _, f := range fields {
		if _, text := f.value(new(Config)).(*string); text || strings.HasPrefix(f.key, "lustre.") {
			continue
		}
		if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Key == f.key }) {
			t.Errorf("%s does not reach %s", f.env(), f.key)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, problems := load(t, `
name: "a b"
state_dir: relative
colour: blue
empty: {}
nats:
  url: nats://user:hunter2@host:4222
  sync_interval: 1s
  tls: {cert: /none}
memory: {size: 95%, region_size: 3MiB, mount: perhaps, dirr: ""}
disk: {size: 1TiB}
listen: {tcp: "0.0.0.0:7481", admin: "127.0.0.1:70000"}
flush: {workers: 0, dirty_age: 5, limit: 10%, high_watermark: 50%, low_watermark: 60%}
s3: {endpoint: "ftp://x", region: ""}
lustre: {stripes: [{count: 1, size: 1MiB}, {below: 1GiB, count: 0, size: 1}, {layout: "-E 1M -c 1"}, {layout: "-c 1", count: 2}]}
limits: {sessions: -1, lease_min: 32MiB, lease_max: 16MiB, inline_threshold: 5MiB}
log: verbose
`)
	keys := make([]string, len(problems))
	for i, p := range problems {
		keys[i] = p.Key
		if p.Why == "" || p.Remedy == "" {
			t.Errorf("%v does not say why, or what to do about it", p)
		}
	}
	slices.Sort(keys)
	want := []string{
		"colour", "disk.dir", "empty", "flush.dirty_age", "flush.limit", "flush.low_watermark", "flush.workers",
		"limits.inline_threshold", "limits.lease_min", "limits.sessions", "listen.admin", "listen.tcp", "log",
		"lustre.stripes[0].below", "lustre.stripes[1].count", "lustre.stripes[1].size",
		"lustre.stripes[2].below", "lustre.stripes[2].layout", "lustre.stripes[3].layout",
		"memory.dirr", "memory.mount", "memory.region_size", "memory.region_size", "memory.size", "name",
		"nats.sync_interval", "nats.tls.cert", "nats.tls.cert", "nats.url", "s3.endpoint", "s3.region", "state_dir",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(problems.Error(), "hunter2") {
		t.Errorf("a password shows in %v", problems)
	}
}

func TestBadFiles(t *testing.T) {
	for _, text := range []string{"- a\n", "name: [\n", "name: a\nname: b\n", "\tname: a\n"} {
		if _, err := Load(Source{Base: Default(), File: write(t, text)}); !errors.Is(err, bb.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Load(Source{Base: Default(), File: os.DevNull}); err != nil {
		t.Errorf("no file: %v", err)
	}
	if _, err := Load(Source{Base: Default(), File: "/nowhere/bbd.yaml"}); !errors.Is(err, bb.NotFound) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(Source{Base: Default(), File: t.TempDir()}); !errors.Is(err, bb.Invalid) {
		t.Errorf("a folder: %v", err)
	}
}

func TestSecretsAreForTheirOwner(t *testing.T) {
	key := write(t, "secret")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	_, problems := load(t, "key_file: "+key+"\nlisten: {tcp: \"0.0.0.0:1\"}\n")
	if len(problems) != 1 || problems[0].Key != "key_file" || !strings.Contains(problems[0].Remedy, "chmod 600") {
		t.Errorf("problems: %v", problems)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": {}, "4096": Bytes(4096), "64GiB": Bytes(64 << 30), "64g": Bytes(64 << 30), "1.5TB": Bytes(15e11),
		"10 MB": Bytes(10e6), "1KiB": Bytes(1024), "2K": Bytes(2048), "25%": {Share: 25}, "7PiB": Bytes(7 << 50),
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "1XB", "0x10", "1e400", "9999PiB", "0%", "101%", "%", "NaN", "Inf", "1 2"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %v", text, got)
		}
	}
	if got := (Size{Share: 25}).Of(1 << 62); got != 1<<60 {
		t.Errorf("a quarter of 4 EiB is %d", got)
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"64GiB", "1.5TB", "25%", "0", "-1", "9e9g"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSize(text)
		if err != nil {
			return
		}
		if s.Bytes < 0 {
			t.Fatalf("ParseSize(%q) = %d", text, s.Bytes)
		}
		if back, err := ParseSize(s.String()); err != nil || back != s {
			t.Errorf("%q → %v → %v, %v", text, s, back, err)
		}
	})
}

func TestPageIsCurrent(t *testing.T) {
	const page = "../../../docs/configuration.md"
	if *update {
		if err := os.WriteFile(page, []byte(Page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != Page() {
		t.Error("docs/configuration.md is not current: run make generate")
	}
}

func TestCommands(t *testing.T) {
	run := func(args ...string) (string, string, error) {
		var out, stderr bytes.Buffer
		cmd := NewConfigCommand()
		cmd.SetOut(&out)
		cmd.SetErr(&stderr)
		cmd.SetArgs(args)
		err := cmd.Execute()
		return out.String(), stderr.String(), err
	}
	defaults, _, err := run("defaults")
	if err != nil || defaults != YAML(Default()) {
		t.Errorf("defaults: %v", err)
	}
	if out, _, err := run("check", "--config", write(t, defaults)); err != nil || !strings.Contains(out, "no problem") {
		t.Errorf("check of the defaults: %q, %v", out, err)
	}
	_, stderr, err := run("check", "--config", write(t, "a: 1\nflush: {workers: x}\n"), "--log-level=loud")
	if err == nil || strings.Count(stderr, "\n") != 3 {
		t.Errorf("check of three problems: %q, %v", stderr, err)
	}
}
