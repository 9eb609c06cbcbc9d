// Package metapb has the generated messages of the records in buckets and queues. It must never
// depend on the places of the records, nor on the rules by which they change.
package metapb
