package directive_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"forebay/internal/bb"
	"forebay/slurm/directive"
	"forebay/slurm/directive/directivetest"
)

func TestDirectives(t *testing.T) {
	datadriven.Walk(t, "testdata/directives", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s := directivetest.Read(t, d)
			return describe(directive.Parse([]byte(s.Text), s.Options))
		})
	})
}

// testVars are the job of the tests.
var testVars = &directive.Vars{
	Buffer: "job-7-x", Job: "7", ArrayJob: "5", ArrayTask: "2", User: "ann", UID: 1000, GID: 100, Name: "my job", WorkDir: "/home/ann",
}

// describe prints a request as the daemons would get it.
func describe(r *directive.Request, problems directive.Problems) string {
	var b strings.Builder
	for _, p := range problems {
		kind := "error"
		if p.Warning {
			kind = "warning"
		}
		fmt.Fprintf(&b, "%s: %s\n", kind, p)
	}
	if problems.Err() != nil {
		return b.String()
	}
	w, err := r.Resolve(testVars)
	if err != nil {
		fmt.Fprintln(&b, "not resolved:", err)
		return b.String()
	}
	if w.Job != nil {
		fmt.Fprintf(&b, "job buffer %s name=%q pool=%q", w.Job.Name, r.Job.Name, r.Job.Pool)
		describeBuffer(&b, w.Job)
	}
	for _, c := range w.Creates {
		fmt.Fprintf(&b, "create %s", c.Name)
		describeBuffer(&b, &c)
	}
	for _, u := range w.Uses {
		fmt.Fprintf(&b, "use %s\n", u)
	}
	for _, x := range w.Destroys {
		fmt.Fprintf(&b, "destroy %s hurry=%v\n", x.Name, x.Hurry)
	}
	for _, s := range w.In {
		fmt.Fprintf(&b, "in %s -> bb://%s/%s continue=%v\n", s.URL, s.Buffer, s.Path, s.ContinueOnError)
	}
	for _, s := range w.Out {
		fmt.Fprintf(&b, "out bb://%s/%s -> %s success=%v\n", s.Buffer, s.Path, s.URL, s.OnSuccess)
	}
	for _, e := range r.Env(testVars) {
		fmt.Fprintln(&b, "env", e)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func describeBuffer(b *strings.Builder, of *bb.Buffer) {
	fmt.Fprintf(b, " capacity=%d backing=%q codec=%q durability=%s replicas=%d limit=%d age=%s", of.Capacity, of.Backing, of.Codec, of.Durability, of.Replicas, of.FlushLimit, of.DirtyAge)
	if of.Existing != bb.ExistingKeep {
		fmt.Fprintf(b, " existing=%s", of.Existing)
	}
	if of.Shared {
		b.WriteString(" shared")
	}
	if len(of.Flush) > 0 {
		fmt.Fprintf(b, " flush=%q", bb.FlushRuleTexts(of.Flush))
	}
	b.WriteString("\n")
}

// TestProfilesAreRead shows that a profile does not bypass the refusals of a line.
func TestProfilesAreRead(t *testing.T) {
	o := directive.Options{Profiles: map[string]string{"p": "backing=nowhere replicas=7"}}
	_, problems := directive.Parse([]byte("#BB jobbb profile=p\n"), o)
	if len(problems.Errors()) != 2 {
		t.Errorf("a profile's bad options were taken: %v", problems)
	}
}

// FuzzParse checks that no accepted path leads out of a buffer or to another place than a store,
// that problems name existing places, and that repeated options are read alike.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"#!/bin/sh\n#BB jobbb capacity=100GiB pool=memory name=a\n#BB stage_in source=/l/%u destination=$BB_JOB_STRIPED/in\n",
		"#BB create_persistent name=x capacity=1TiB backing=s3://b/%j\n#BB stage_out source=${BB_PERSISTENT_STRIPED_x}/a destination=file:///x on=success\n",
		"#BB jobbb profile=p\n#BB destroy_persistent name=y hurry\nls\n#BB jobbb\n", "#BB\t\\\n#BB x\r\n", "#BB jobbb capacity=9999999999999999P\n",
		"#BB stage_in source=file:/l destination=$BB_JOB_STRIPED/in\n#BB jobbb backing=S3://b/p\n",
		"#BB jobbb backing=/l flush=a*/=every-5,complete-with-x;b/=when-a-second-copy-is-gone replicas=2\n",
	} {
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, script string, expanded bool) {
		o := directive.Options{Prefixes: []string{"BB", "DW"}, Profiles: map[string]string{"p": "backing=/b replicas=2"}, Expanded: expanded}
		r, problems := directive.Parse([]byte(script), o)
		lines := strings.Split(script, "\n")
		for _, p := range problems {
			if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > len(lines[p.Line-1])+1 {
				t.Fatalf("%v is not in the script", p)
			}
			if p.Reason == "" || strings.ContainsAny(p.String(), "\n\r") {
				t.Fatalf("%q is not one line", p.String())
			}
		}
		if problems.Err() != nil {
			return
		}
		if d := describe(r, problems); d == "" {
			t.Fatal("no description")
		}
		w, err := r.Resolve(testVars)
		if err != nil {
			return
		}
		for _, s := range append(w.In, w.Out...) {
			if strings.Contains("/"+s.Path+"/", "/../") || s.Buffer == "" {
				t.Fatalf("%+v leads out of its buffer", s)
			}
			if !strings.HasPrefix(s.URL, "file:///") && !strings.HasPrefix(s.URL, "s3://") {
				t.Fatalf("%+v has no store", s)
			}
		}
		if w.Job != nil && w.Job.Capacity < 0 {
			t.Fatalf("%+v", w.Job)
		}
	})
}
