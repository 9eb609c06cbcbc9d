// Package forebay is the root of Forebay, a burst buffer. It takes an application's write burst at
// memory speed on the node where the application runs, serves it from memory, and drains it to a
// parallel file system or an object store.
//
// Programs import forebay/client; the commands are cmd/bbd, the daemon, and cmd/bbctl. This package
// holds no code. It carries the test of the import rules.
package forebay
