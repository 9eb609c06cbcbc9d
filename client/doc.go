// Package client is the Go API of Forebay: programs write files into a burst
// buffer at memory speed and read them back, and tools manage buffers. It talks to
// one daemon, over its unix socket or TCP; it knows the control protocol and how to
// map regions or reach them one-sided, and never what the daemon does with the bytes
// afterwards.
//
// # Contexts
//
// Every call that may wait takes a context, and returns an error of kind Cancelled
// when it ends; of kind Unavailable if its deadline came while the daemon waited for
// another daemon or the namespace's server, which the error names. A [File] keeps the context of its Open: when that ends, blocked and
// later operations on the file fail, and what it had not committed is forgotten.
//
// # Errors
//
// Every error is an [*Error] with one of the kinds ErrNotFound, ErrExists, …:
//
//	if errors.Is(err, client.ErrNoSpace) { … }
//
// The standard library's errors match too: errors.Is(err, fs.ErrNotExist).
//
// # What survives
//
// A write that returned survives nothing yet. Once Sync or Close returned, the bytes
// survive this process and the daemon's restarts, and every other process sees them.
// When the connection breaks, the next operation connects again, for up to
// Options.RetryFor, opens files again where they were, and writes again what had not
// been acknowledged.
//
// # Memory
//
// On the daemon's node, bytes are copied once, into its memory. Over TCP they wait in
// this process's, while they are transferred and until they are committed: up to
// 32 MiB for each file, after which it commits of itself, and leases of up to 8 MiB
// that files share. A reader keeps up to 4 MiB of what it read
// parts of, and fetches as much ahead.
//
// When a connection breaks, operations go on in a new one. A change that may have reached
// the daemon is not sent again: its error matches ErrUnknownOutcome.
package client
