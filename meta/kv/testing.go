package kv

// For tests of the packages above that take a bucket for one of several copies. No program uses it.

// AssumeCopies makes reads go as if the bucket had so many copies.
func (b *Bucket) AssumeCopies(n int32) { b.copies.Store(n) }

// Subjects returns the prefix of the subjects of the bucket's keys.
func (b *Bucket) Subjects() string { return b.subject }
