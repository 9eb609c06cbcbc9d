package directive

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"forebay/internal/bb"
)

// Problem is an error in a directive, or, as a Warning, an ignored part of it.
type Problem struct {
	Line    int    // of the script, from 1
	Column  int    // in bytes, from 1
	Reason  string // one line
	Remedy  string // "" if there is none
	Warning bool   // the job may run all the same
}

// String returns one line: "line 3, column 14: reason (remedy)".
func (p Problem) String() string {
	s := fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Reason)
	if p.Remedy != "" {
		s += " (" + p.Remedy + ")"
	}
	return s
}

// Problems are those of one script, in the order of its text.
type Problems []Problem

// Errors returns those that forbid the job to run.
func (ps Problems) Errors() Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return p.Warning })
}

// Warnings returns those about ignored parts.
func (ps Problems) Warnings() Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return !p.Warning })
}

// Err returns an error of kind invalid that names all errors, the first one first, or nil.
func (ps Problems) Err() error {
	var lines []string
	for _, p := range ps.Errors() {
		lines = append(lines, p.String())
	}
	if len(lines) == 0 {
		return nil
	}
	return &bb.Error{Kind: bb.Invalid, Op: "directives", Err: errors.New("invalid: " + strings.Join(lines, "; "))}
}
