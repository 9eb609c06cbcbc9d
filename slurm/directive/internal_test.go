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

func TestManyDirectives(t *testing.T) {
	_, problems := Parse([]byte(strings.Repeat("#BB destroy_persistent name=x\n", 2*maxDirectives)), Options{})
	last := problems[len(problems)-1]
	if last.Line != maxDirectives+1 || !strings.Contains(last.Reason, "more than") {
		t.Errorf("%v", last)
	}
}
