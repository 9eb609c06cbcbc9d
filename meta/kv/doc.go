// Package kv is the key-value store under everything that the daemons agree on: buckets of
// records changed by compare-and-set, listed and watched, over NATS JetStream. It must never depend on
// the meaning of a record, no namespace, no operation, nor how the server is reached.
//
// When the answer to a change was lost, the change is read back and sent again until its outcome is
// certain. A read returns every change that was acknowledged before it began (see barriers). While
// the server is away, calls wait for it until their context ends, and then fail with
// bb.Unavailable, which names the server.
package kv
