// Package provider has the parts that every provider of package rdma needs beside its own way of moving
// bytes: listening, the handshake over TCP, admission, limits of operations in flight, open
// connections, and checks of options. It must never depend on the way of the bytes into a region,
// nor on the list of regions.
package provider
