package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"forebay/bbd/retry"
	"forebay/internal/bb"
)

// TestUpdate: a change is repeated only while its outcome may be either.
func TestUpdate(t *testing.T) {
	t.Parallel()
	unknown := fmt.Errorf("%w: %w", bb.Unavailable, bb.ErrUnknownOutcome)
	for name, c := range map[string]struct {
		answers   []error
		uncertain []bool
	}{
		"done":                   {[]error{nil}, []bool{false}},
		"refused":                {[]error{bb.Busy}, []bool{false}},
		"not carried out":        {[]error{bb.Unavailable}, []bool{false}},
		"unknown, done":          {[]error{unknown, nil}, []bool{false, true}},
		"unknown, away, refused": {[]error{unknown, bb.Unavailable, unknown, bb.Busy}, []bool{false, true, true, true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls []bool
			e, err := retry.Update(t.Context(), func(uncertain bool) (bb.Entry, error) {
				calls = append(calls, uncertain)
				return bb.Entry{Size: int64(len(calls))}, c.answers[len(calls)-1]
			})
			if !slices.Equal(calls, c.uncertain) || e.Size != int64(len(calls)) || !errors.Is(err, c.answers[len(c.answers)-1]) {
				t.Errorf("%s: %v, %+v, %v", name, calls, e, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := retry.Update(ctx, func(bool) (bb.Entry, error) { return bb.Entry{}, unknown }); !errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("at the end: %v", err)
	}
}
