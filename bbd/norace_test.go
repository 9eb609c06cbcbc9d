//go:build !race

package bbd_test

// codecs are the codecs of tests that move many bytes.
var codecs = []string{"", "zstd"}
