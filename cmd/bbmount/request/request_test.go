package request

import (
	"errors"
	"testing"

	"forebay/client"
	"forebay/internal/bb"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	lost := bb.E(bb.Unavailable, "rename", "", "outcome unknown")
	lost.Unknown = true
	var calls []bool
	err := Settle(t.Context(), func(repeated bool) error {
		calls = append(calls, repeated)
		if len(calls) < 3 {
			return lost
		}
		return client.ErrExists
	})
	if !errors.Is(err, client.ErrExists) || len(calls) != 3 || calls[0] || !calls[1] || !calls[2] {
		t.Errorf("%v after %v", err, calls)
	}
}
