package cli

import (
	"errors"

	"forebay/internal/bb"
)

// The exit codes of bbctl and bbmount. They are stable (see bbctl --help).
const (
	ExitDone        = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitPermission  = 4
	ExitUnavailable = 5
	ExitDamaged     = 6
	ExitPartly      = 7
	ExitCancelled   = 8
	ExitConflict    = 9
	ExitNoSpace     = 10
)

// ExitCode returns the exit code that an error's kind has.
func ExitCode(err error) int {
	switch bb.KindOf(err) {
	case 0:
		return ExitDone
	case bb.Invalid, bb.Unsupported:
		return ExitUsage
	case bb.NotFound:
		return ExitNotFound
	case bb.Permission:
		return ExitPermission
	case bb.Unavailable:
		return ExitUnavailable
	case bb.Lost, bb.Checksum:
		return ExitDamaged
	case bb.Cancelled:
		return ExitCancelled
	case bb.Exists, bb.Busy, bb.NotEmpty, bb.IsDirectory, bb.NotDirectory:
		return ExitConflict
	case bb.NoSpace:
		return ExitNoSpace
	}
	return ExitError
}

// Failed is the error of another program that this one has run. It has its exit code, and the line
// that it printed.
type Failed struct {
	Code int
	Line string
}

func (f *Failed) Error() string { return f.Line }

// CodeOf is ExitCode, and that of a program that failed.
func CodeOf(err error) int {
	var f *Failed
	if errors.As(err, &f) {
		return f.Code
	}
	return ExitCode(err)
}
