// Package forebay is the root of Forebay, a burst buffer. It takes an application's write burst at
// memory speed on the node where the application runs, serves it from memory, and drains it to a
// parallel file system or an object store.
//
// Programs import forebay/client; the commands are cmd/bbd, the daemon, and cmd/bbctl. This package carries the tests of
// the import rules and budgets, and must never hold code.
package forebay
