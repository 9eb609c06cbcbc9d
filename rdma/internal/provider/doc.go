// Package provider has the parts that every provider of package rdma needs beside its own way of moving
// bytes: listening, the handshake over TCP, admission, limits of what is in flight, what is open, and
// checks of options. It must never know how bytes get into a region, nor which regions there are.
package provider
