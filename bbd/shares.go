package bbd

import (
	"math"

	"forebay/bbd/share"
)

// userShares divides among users what sessions make the daemon hold, besides requests (package rpc). Root and the daemon's user are not
// counted: they get what they ask for, whatever the others have.
type userShares struct {
	files   *share.Pool // open
	waiters *share.Pool // writers in the line for memory
	pins    *share.Pool // bytes of the segments that readers keep where they are; sized once the store is open

	maxPinned int64 // bytes that one answer to a reader pins
}

func newShares(l *Limits) *userShares {
	return &userShares{
		files:   share.NewPool(int64(l.OpenFiles)),
		waiters: share.NewPool(int64(l.Waiters)),
		pins:    share.NewPool(math.MaxInt64 / 4),
	}
}
