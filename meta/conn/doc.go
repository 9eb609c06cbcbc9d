// Package conn is one connection to the namespace's server, NATS JetStream: requests that are in flight at
// the same time, broadcasts, feeds of a stream's messages, and whether the namespace answers. It must never
// know the content of a stream: no bucket, no queue, no log.
//
// While the server is away, calls wait for it until their context ends, and then fail with
// bb.Unavailable, which names the server.
package conn
