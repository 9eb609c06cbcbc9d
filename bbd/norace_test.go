//go:build !race

package bbd_test

// codecs are the codecs of tests that move many bytes.
var codecs = []string{"", "zstd"}

// smallMemory is the memory of nodes, in bytes, that have a file larger than it.
const smallMemory = 64 << 20
