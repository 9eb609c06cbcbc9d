package client

import "unsafe"

// stringBytes returns the bytes of a string, which must only be read: a string's memory
// never changes, and stays as long as the slice does (unsafe.StringData).
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
