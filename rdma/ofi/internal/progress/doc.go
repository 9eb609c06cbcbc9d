// Package progress reads completions and events from libfabric and passes them on to connections, in one
// thread for all of a fabric's. It must never depend on the purpose of an operation.
package progress
