package client

import (
	"os"

	"forebay/client/internal/reader"
)

// Mapping is a part of a file where it lies in memory. It may be used concurrently.
type Mapping struct{ m *reader.Mapping }

// Slices returns the bytes, in order. They must not be written, nor touched after
// Release. If the connection to the daemon breaks, their content is only certain
// after Verify.
func (m *Mapping) Slices() [][]byte { return m.m.Slices() }

// InPlace returns a file in this node's memory that has exactly the bytes of all of the mapped file, each at its
// offset. Nothing ever changes it. It is open for writing too, and must not be written. It must not be used after Release.
// Nil: the bytes lie otherwise, or the mapping is not that of a whole file (see OpenOptions.Linear).
func (m *Mapping) InPlace() *os.File { return m.m.InPlace() }

// Len returns how many bytes there are.
func (m *Mapping) Len() int64 { return m.m.Len() }

// Verify checks the bytes against the checksums of the extents that they are in.
func (m *Mapping) Verify() error { return m.m.Verify() }

// Release unpins the memory. It may be called twice.
func (m *Mapping) Release() error { return m.m.Release() }
