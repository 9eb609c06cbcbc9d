package app

import (
	"errors"
	"testing"

	"forebay/client"
	"forebay/internal/cli"
)

// The exit code of a command with several operands: the operands that succeeded, and
// how the others failed.
func TestSeveralOutcomes(t *testing.T) {
	missing, missingToo := &client.Error{Kind: client.ErrNotFound, Op: "open"}, &client.Error{Kind: client.ErrNotFound, Op: "stat"}
	full := &client.Error{Kind: client.ErrNoSpace, Op: "write"}
	away := &client.Error{Kind: client.ErrUnavailable, Op: "dial"}
	for name, c := range map[string]struct {
		done   int
		failed []error
		ended  error
		want   int
	}{
		"all done":                     {done: 3},
		"nothing asked for":            {},
		"the only one failed":          {failed: []error{missing}, want: cli.ExitNotFound},
		"one of two failed":            {done: 1, failed: []error{full}, want: cli.ExitPartly},
		"all failed in one way":        {failed: []error{missing, missingToo}, want: cli.ExitNotFound},
		"all failed in different ways": {failed: []error{missing, full}, want: cli.ExitPartly},
		"some failed":                  {done: 2, failed: []error{missing, full}, want: cli.ExitPartly},
		"the daemon went":              {done: 2, failed: []error{away}, ended: away, want: cli.ExitUnavailable},
	} {
		s := &Several{What: "put", ended: c.ended}
		for range c.done {
			s.Note(nil)
		}
		for _, err := range c.failed {
			s.Note(err)
		}
		got := cli.ExitDone
		if err := outcome(s.What, s.done, s.Count, s.failed, s.ended); err != nil {
			got = ExitCode(err)
		}
		if got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

func TestSeveralIsBounded(t *testing.T) {
	s := &Several{}
	for range maxListed + 1 {
		s.Note(errors.New("failed"))
	}
	if s.Count != maxListed+1 || len(s.failed) != maxListed {
		t.Errorf("%d counted, %d kept", s.Count, len(s.failed))
	}
}
