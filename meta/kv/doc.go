// Package kv is the key-value store under everything that the daemons agree on: buckets of
// records changed by compare-and-set, listed and watched, over NATS JetStream. It must never know
// what a record means, no namespace, no operation, nor how the server is reached.
//
// A change whose answer was lost is looked for and sent again until it is known what became
// of it; a read sees all that was acknowledged to anybody before it began (see barriers).
// While the server is away, calls wait for it until their context ends, and then fail with
// bb.Unavailable, which names the server.
package kv
