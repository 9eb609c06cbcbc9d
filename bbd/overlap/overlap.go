// Package overlap decides which buffers may not be beside each other, since their stores overlap. It is pure,
// and must never read a store.
//
// Stores overlap if two buffers have one store, or one below the other's. Each buffer takes the
// other's files for those of others, and neither detects the changes of the other there. If the
// store of a new buffer overlaps that of another, the buffer is created only if its creator shares
// the store, or if the two are a chain of jobs.
package overlap

import (
	"fmt"

	"forebay/bbd/access"
	"forebay/internal/bb"
)

// Of reports whether a new buffer may not be created beside another one, since their stores
// overlap. Buffers of one user's jobs that keep files of others are a chain. The earlier one still
// drains while the next job starts, and neither replaces the files that the other has written.
func Of(spec, other *bb.Buffer) bool {
	switch {
	case other.Name == spec.Name || other.State == bb.BufferDestroying || !sameStore(spec, other):
		return false
	case spec.Job == "" || other.Job == "" || spec.UID != other.UID:
		return true
	}
	return !spec.Existing.Keeps() || !other.Existing.Keeps()
}

// sameStore reports whether the stores of two buffers are one, by their URLs or as directories, or
// one lies below the other.
func sameStore(a, b *bb.Buffer) bool {
	if a.BackingID != "" && a.BackingID == b.BackingID {
		return true
	}
	one, err := bb.ParseBacking(a.Backing)
	if err != nil {
		return false // there is none
	}
	other, err := bb.ParseBacking(b.Backing)
	return err == nil && one.Overlaps(other)
}

// Refusal is the error of a buffer that may not be created beside another one. It names the other
// buffer to users with the right to enter it.
func Refusal(c access.Caller, spec, other *bb.Buffer) error {
	whose := "a buffer that you may not enter"
	if c.Permits(other.UID, other.GID, other.Mode, access.Execute) {
		whose = fmt.Sprintf("buffer %s, %s", other.Name, other.Backing)
	}
	remedy := "choose another folder; or share it, if each of the two writes names of its own: --shared, shared in the clients, shared=yes in a Slurm directive"
	if spec.Job != "" && other.Job != "" && spec.UID == other.UID {
		remedy = "wait until that job's files are on the store; or use existing=keep for both jobs, or shared=yes, with which the last flush wins"
	}
	return bb.E(bb.Exists, "backing", spec.Backing, "the store overlaps that of "+whose).WithRemedy(remedy)
}
