package directive

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	job := &Vars{
		Buffer: "job-7-x", Job: "7", ArrayJob: "5", ArrayTask: "2", User: "ann", UID: 1000, GID: 100, Name: "my job", WorkDir: "/home/ann",
	}
	for in, want := range map[string]string{
		"": "", "plain": "plain", "%j.%A.%a.%u.%x.%d": "7.5.2.ann.my job./home/ann", "%%j": "%j", "%": "%", "%z": "%z", "a%": "a%",
	} {
		if got := job.expand(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	alone := &Vars{Job: "9"}
	if got := alone.expand("%A/%a"); got != "9/0" {
		t.Errorf("of a job without array: %q", got)
	}
}

// TestStoreURL shows that each valid spelling of a URL becomes one spelling, and that a file's path stays
// unchanged.
func TestStoreURL(t *testing.T) {
	v := &Vars{Job: "7", User: "u"}
	for text, want := range map[string]string{
		"file:///l/%j?x":  "file:///l/7%3Fx",
		"file:/l/%u":      "file:///l/u",
		"FILE:///l":       "file:///l",
		"File:/l":         "file:///l",
		"s3://b/%j":       "s3://b/7",
		"S3://b/p":        "s3://b/p",
		"file:l":          "",
		"file:":           "",
		"file://":         "",
		"file://host/l":   "",
		"s3:/b":           "",
		"http://b/p":      "",
		"/l":              "",
		"file:///":        "",
		"file:/":          "",
		"file:///l\x00/x": "",
	} {
		got, err := storeURL(text, v, false)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("storeURL(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestManyDirectives(t *testing.T) {
	_, problems := Parse([]byte(strings.Repeat("#BB destroy_persistent name=x\n", 2*maxDirectives)), Options{})
	last := problems[len(problems)-1]
	if last.Line != maxDirectives+1 || !strings.Contains(last.Reason, "more than") {
		t.Errorf("%v", last)
	}
}
