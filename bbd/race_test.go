//go:build race

package bbd_test

// codecs are the codecs of tests that move many bytes. The race detector looks at each of them at each copy.
// With a codec a file goes through all parts that it goes through without one, but for reads in the middle of an
// object. TestClusterFileLargerThanMemory and TestReadRenamedOverFlushed have those under the detector.
var codecs = []string{"zstd"}

// smallMemory is the memory of nodes, in bytes, that have a file larger than it.
const smallMemory = 32 << 20
