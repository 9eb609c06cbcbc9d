package main

import (
	"errors"
	"testing"

	"forebay/client"
)

// The exit code of a command that was asked for several things: what was done of them, and
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
		"the only one failed":          {failed: []error{missing}, want: exitNotFound},
		"one of two failed":            {done: 1, failed: []error{full}, want: exitPartly},
		"all failed in one way":        {failed: []error{missing, missingToo}, want: exitNotFound},
		"all failed in different ways": {failed: []error{missing, full}, want: exitPartly},
		"some failed":                  {done: 2, failed: []error{missing, full}, want: exitPartly},
		"the daemon went":              {done: 2, failed: []error{away}, ended: away, want: exitUnavailable},
	} {
		s := &several{what: "put", ended: c.ended}
		for range c.done {
			s.note(nil)
		}
		for _, err := range c.failed {
			s.note(err)
		}
		got := exitDone
		if err := outcome(s.what, s.done, s.count, s.failed, s.ended); err != nil {
			got = exitCode(err)
		}
		if got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

func TestSeveralIsBounded(t *testing.T) {
	s := &several{}
	for range maxListed + 1 {
		s.note(errors.New("failed"))
	}
	if s.count != maxListed+1 || len(s.failed) != maxListed {
		t.Errorf("%d counted, %d kept", s.count, len(s.failed))
	}
}
