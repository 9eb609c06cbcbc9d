package client

import "forebay/client/internal/reader"

// Mapping is a part of a file where it lies in memory. It may be used concurrently.
type Mapping struct{ m *reader.Mapping }

// Slices returns the bytes, in order. They must not be written, nor touched after
// Release. If the connection to the daemon breaks, their content is only certain
// after Verify.
func (m *Mapping) Slices() [][]byte { return m.m.Slices() }

// Len returns how many bytes there are.
func (m *Mapping) Len() int64 { return m.m.Len() }

// Verify checks the bytes against the checksums of the extents that they are in.
func (m *Mapping) Verify() error { return m.m.Verify() }

// Release unpins the memory. It may be called twice.
func (m *Mapping) Release() error { return m.m.Release() }
