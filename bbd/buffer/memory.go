package buffer

import (
	"time"

	"forebay/bbd/alloc"
	"forebay/flusher/backing/health"
)

// The methods of a buffer that the allocator uses.
var _ alloc.Buffer = (*Buffer)(nil)

// Blocked counts the time that a writer has waited for memory.
func (b *Buffer) Blocked(d time.Duration) { b.usage.Blocked(d) }

// ReleaseIdle returns the segments that the daemon itself fills and does not use now.
func (b *Buffer) ReleaseIdle() { b.writers.ReleaseIdle() }

// Flushes reports whether there is a store, which answers.
func (b *Buffer) Flushes() bool {
	if b.Spec().Backing == "" {
		return false
	}
	switch b.h.Stores.Health(b.name).Status().Condition {
	case health.Silent, health.Failing:
		return false
	}
	return true
}
