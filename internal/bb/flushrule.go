package bb

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// FlushRule is the choice of the steps of a series that are flushed: directories whose names match a
// pattern and end with their number, as step-10/. It is written PATTERN/=CLAUSE[,CLAUSE…], where a blank
// may be a hyphen:
//
//	step-*/=every 5                        those whose number is a multiple of 5
//	step-*/=last at end of job             none before the buffer is drained
//	step-*/=when a second copy is gone     those that memory alone no longer holds twice
//	step-*/=every 5,complete with done     a step is complete with the file "done" in it
//
// A drain flushes the newest complete step under any clauses. docs/concepts.md has the words.
type FlushRule struct {
	Pattern  string // of directories (see CheckPattern); it ends with a slash
	Every    int64  // multiples of it are flushed as other files are; 0: no step is
	Copies   bool   // a complete step without its second copy is flushed
	Complete string // pattern of the file that is written last into a step; "": one of StepMarkers
}

// StepMarkers are the files that complete a step if its rule names no other: the record that
// PyTorch's distributed checkpoints write last, and the index of checkpoints in Python, which a
// transaction makes visible with all other files.
func StepMarkers() []string { return []string{".metadata", "checkpoint.json"} }

// MaxFlushRules bounds the flush rules of a buffer. Each is compared with each directory of a path.
const MaxFlushRules = 32

// maxStepDigits bounds the numbers of steps.
const maxStepDigits = 18

// The clauses, with blanks.
const (
	clauseEvery    = "every "
	clauseLast     = "last at end of job"
	clauseCopies   = "when a second copy is gone"
	clauseComplete = "complete with "
)

// ParseFlushRule is the inverse of FlushRule.String.
func ParseFlushRule(text string) (r FlushRule, err error) {
	invalid := func(reason string) error {
		return E(Invalid, "flush rule", fmt.Sprintf("%.200q", text), reason).
			WithRemedy("write PATTERN/=every N, PATTERN/=last at end of job or PATTERN/=when a second copy is gone, " +
				"or several of these after commas, with complete with NAME")
	}
	pattern, clauses, ok := strings.Cut(text, "/=")
	if !ok {
		return r, invalid("has no pattern of a directory before an equals sign")
	}
	r.Pattern = pattern + "/"
	var said []string
	for clause := range strings.SplitSeq(clauses, ",") {
		clause = strings.TrimSpace(clause)
		words := strings.ReplaceAll(clause, "-", " ")
		kind := words
		switch {
		case words == clauseLast:
		case words == clauseCopies:
			r.Copies = true
		case strings.HasPrefix(words, clauseEvery):
			kind = clauseEvery
			n, ok := parseStep(words[len(clauseEvery):])
			if !ok || n == 0 {
				return r, invalid(fmt.Sprintf("%.64q is no number of steps", words[len(clauseEvery):]))
			}
			r.Every = n
		case strings.HasPrefix(words, clauseComplete) && words != clauseComplete:
			kind, r.Complete = clauseComplete, clause[len(clauseComplete):]
		default:
			return r, invalid(fmt.Sprintf("%.64q is no clause", clause))
		}
		if slices.Contains(said, kind) {
			return r, invalid(fmt.Sprintf("has %.64q twice", strings.TrimSpace(kind)))
		}
		said = append(said, kind)
	}
	if slices.Equal(said, []string{clauseComplete}) {
		return r, invalid("names no steps to flush")
	}
	return r, r.Check()
}

// FlushRules reads rules that come from elsewhere. Of an unreadable one Check returns the reason.
func FlushRules(texts []string) (rules []FlushRule) {
	for _, text := range texts {
		r, err := ParseFlushRule(text)
		if err != nil {
			r = FlushRule{Pattern: text, Every: unread}
		}
		rules = append(rules, r)
	}
	return rules
}

// unread is Every of a rule that could not be read. Its Pattern is all of its text.
const unread = -1

// FlushRuleTexts writes rules.
func FlushRuleTexts(rules []FlushRule) (texts []string) {
	for _, r := range rules {
		texts = append(texts, r.String())
	}
	return texts
}

// Check refuses a rule that no buffer can have.
func (r FlushRule) Check() error {
	invalid := func(value any, reason string) *Error {
		return E(Invalid, "flush rule", fmt.Sprintf("%.64q", fmt.Sprint(value)), reason)
	}
	if r.Every == unread {
		if _, err := ParseFlushRule(r.Pattern); err != nil {
			return err
		}
	}
	switch {
	case !strings.HasSuffix(r.Pattern, "/"):
		return invalid(r.Pattern, "is no pattern of directories").WithRemedy("write step-*/, with a slash at its end")
	case r.Every < 0 || r.Every >= 1e18:
		return invalid(r.Every, "is no number of steps")
	case r.Complete != "" && (strings.ContainsAny(r.Complete, "/,\x00") || strings.TrimSpace(r.Complete) != r.Complete):
		return invalid(r.Complete, "is not the name of a file in a step").WithRemedy("write one name, without slashes and commas; * ? [a-z] are wildcards")
	case r.Complete != "":
		if err := CheckPattern(r.Complete); err != nil {
			return err
		}
	}
	return CheckPattern(r.Pattern)
}

// String returns the rule as it is written.
func (r FlushRule) String() string {
	if r.Every == unread {
		return r.Pattern
	}
	var clauses []string
	if r.Every > 0 {
		clauses = append(clauses, clauseEvery+strconv.FormatInt(r.Every, 10))
	}
	if r.Copies {
		clauses = append(clauses, clauseCopies)
	}
	if len(clauses) == 0 {
		clauses = append(clauses, clauseLast)
	}
	if r.Complete != "" {
		clauses = append(clauses, clauseComplete+r.Complete)
	}
	return r.Pattern + "=" + strings.Join(clauses, ",")
}

// Due reports whether a step is flushed for its number alone.
func (r FlushRule) Due(number int64) bool { return r.Every > 0 && number%r.Every == 0 }

// Completes reports whether a file of this name, which lies directly in a step, completes it.
func (r FlushRule) Completes(name string) bool {
	if r.Complete != "" {
		return matches(r.Complete, name)
	}
	return slices.Contains(StepMarkers(), name)
}

// Number returns the number of a directory that the rule is about.
func (r FlushRule) Number(name string) (n int64, ok bool) {
	if !matches(strings.TrimSuffix(r.Pattern, "/"), name) {
		return 0, false
	}
	digits := len(name)
	for digits > 0 && name[digits-1] >= '0' && name[digits-1] <= '9' {
		digits--
	}
	return parseStep(name[digits:])
}

// Series returns the part before the number in the name of a step. Only steps of one series supersede each
// other.
func (r FlushRule) Series(name string) string { return strings.TrimRight(name, "0123456789") }

func parseStep(digits string) (int64, bool) {
	if digits == "" || len(digits) > maxStepDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// StepOf finds the step that a file lies in. It is the outermost directory that a rule is about,
// with the first such rule. Files that transactions hide lie in none.
func StepOf(rules []FlushRule, file string) (dir string, rule FlushRule, number int64, ok bool) {
	if len(rules) == 0 || Hidden(file) {
		return "", FlushRule{}, 0, false
	}
	for end, c := range file {
		if c != '/' {
			continue
		}
		for _, r := range rules {
			if n, ok := r.Number(path.Base(file[:end])); ok {
				return file[:end], r, n, true
			}
		}
	}
	return "", FlushRule{}, 0, false
}

// Findings are the earlier files of a new buffer's store.
type Findings struct {
	Found      string // a file that the store held when the buffer was made; only in the answer to its creation
	FoundTotal int    // files that it held then, counted to MaxFound+1; only in that answer
}

// SupersededStep is a step that a flush rule does not flush any more.
type SupersededStep struct {
	Step  string `json:"step"` // its path
	By    string `json:"by"`   // the path of the newer complete one
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
}

// SupersededSteps are all steps of a buffer that flush rules do not flush any more.
type SupersededSteps struct {
	Buffer string           `json:"buffer"`
	Total  int64            `json:"total"` // steps
	Files  int64            `json:"files"` // of all of them
	Bytes  int64            `json:"bytes"`
	Steps  []SupersededStep `json:"steps"` // the first of them
}
