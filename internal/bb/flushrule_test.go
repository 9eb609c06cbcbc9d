package bb

import (
	"strings"
	"testing"
)

func TestParseFlushRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		rule   FlushRule
		string string // "": text
	}{
		"step-*/=every 5":                        {FlushRule{Pattern: "step-*/", Every: 5}, ""},
		"step-*/=every-5":                        {FlushRule{Pattern: "step-*/", Every: 5}, "step-*/=every 5"},
		"step=*/=every 250, last at end of job":  {FlushRule{Pattern: "step=*/", Every: 250}, "step=*/=every 250"},
		"*/=last at end of job":                  {FlushRule{Pattern: "*/"}, ""},
		"*/=last-at-end-of-job":                  {FlushRule{Pattern: "*/"}, "*/=last at end of job"},
		"s*/=when a second copy is gone":         {FlushRule{Pattern: "s*/", Copies: true}, ""},
		"s*/=every 5,when-a-second-copy-is-gone": {FlushRule{Pattern: "s*/", Every: 5, Copies: true}, "s*/=every 5,when a second copy is gone"},
		"s*/=every 5,complete with all-done.*":   {FlushRule{Pattern: "s*/", Every: 5, Complete: "all-done.*"}, ""},
		"s*/=every-5,complete-with-all-done":     {FlushRule{Pattern: "s*/", Every: 5, Complete: "all-done"}, "s*/=every 5,complete with all-done"},
	} {
		got, err := ParseFlushRule(text)
		if err != nil || got != want.rule {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if want.string == "" {
			want.string = text
		}
		if got.String() != want.string {
			t.Errorf("%s is written %s", text, got)
		}
		if again, err := ParseFlushRule(got.String()); err != nil || again != got {
			t.Errorf("%s is read again as %+v, %v", got, again, err)
		}
	}
	for text, reason := range map[string]string{
		"":                              "no pattern",
		"step-*":                        "no pattern",
		"step-*=every 5":                "no pattern",
		"/=every 5":                     "names nothing",
		"a/b/=every 5":                  "more than one name",
		"[/=every 5":                    "malformed",
		"s*/=":                          "no clause",
		"s*/=every":                     "no clause",
		"s*/=every 0":                   "no number",
		"s*/=every -1":                  "no number",
		"s*/=every 1.5":                 "no number",
		"s*/=every 1234567890123456789": "no number",
		"s*/=every 5,every 6":           "twice",
		"s*/=every 5,sometimes":         "no clause",
		"s*/=complete with x":           "no steps",
		"s*/=every 5,complete with ":    "no clause",
		"s*/=every 5,complete with a/":  "not the name",
		"s*/=every 5,complete-with-":    "no clause",
		"s*/=every 5,complete with [":   "malformed",
	} {
		_, err := ParseFlushRule(text)
		if KindOf(err) != Invalid || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v, want %q", text, err, reason)
		}
	}
}

// TestFlushRulesUnread: a rule that cannot be read is refused with the reason, is about no directory, and is
// written as it was.
func TestFlushRulesUnread(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"step-*/=sometimes", "step-*/", "step-*"} {
		r := FlushRules([]string{text})[0]
		if err := r.Check(); KindOf(err) != Invalid || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
		if got := FlushRuleTexts([]FlushRule{r}); got[0] != text {
			t.Errorf("%s is written %s", text, got)
		}
	}
}

func TestStepOf(t *testing.T) {
	t.Parallel()
	rules := []FlushRule{{Pattern: "step-*/", Every: 5}, {Pattern: "s*/", Every: 7}}
	for file, want := range map[string]struct {
		dir    string
		number int64
		every  int64 // of the rule; 0: none is about the file
	}{
		"step-10/f":                       {"step-10", 10, 5},
		"run-3/step-0010/a/b":             {"run-3/step-0010", 10, 5},
		"step-1/step-2/f":                 {"step-1", 1, 5},
		"s7/step-5/f":                     {"s7", 7, 7},
		"step-10":                         {},
		"step-10.tmp/f":                   {},
		"step-/f":                         {},
		"step-1234567890123456789/f":      {},
		"other-10/f":                      {},
		HiddenDir + "/1/output/step-10/f": {},
		"":                                {},
		"step-x/step-5/f":                 {"step-x/step-5", 5, 5},
		"step-999999999999999999/f":       {"step-999999999999999999", 999999999999999999, 5},
	} {
		dir, rule, n, ok := StepOf(rules, file)
		if dir != want.dir || n != want.number || rule.Every != want.every || ok != (want.every != 0) {
			t.Errorf("%s: %q, %d, %+v, %v", file, dir, n, rule, ok)
		}
	}
	if _, _, _, ok := StepOf(nil, "step-10/f"); ok {
		t.Error("a file lies in a step without rules")
	}
}

func TestCompletes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		complete, name string
		want           bool
	}{
		{"", ".metadata", true},
		{"", "checkpoint.json", true},
		{"", "part-0", false},
		{"done*", "done.txt", true},
		{"done*", ".metadata", false},
	} {
		if got := (FlushRule{Complete: c.complete}).Completes(c.name); got != c.want {
			t.Errorf("%q, %q: %v", c.complete, c.name, got)
		}
	}
}
