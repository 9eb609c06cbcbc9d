// Package backing is the contract of a store behind a buffer: put whole objects so that they are durable or not there
// at all, and read, list, rename and remove them. It has names and bytes. It must never depend on buffers, namespaces,
// policies or compression.
//
// The adaptors stand beside each other (posix, s3, mem), and so do the wrappers of the same
// interface (retry, limit, fault, detach). Package open stacks them. Package backingtest holds the
// suite that each of them passes.
package backing
