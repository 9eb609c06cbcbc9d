// Package progress takes completions and events from libfabric and passes them on to connections, in one
// thread for all of a fabric's. It must never know what an operation is for.
package progress
