package reader

import (
	"io/fs"

	"forebay/client/internal/region"
	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/internal/bb"
)

// Source is a reader's source of files. It is one buffer of one client, with the shared state of
// its readers.
type Source struct {
	Conn      *session.Connection
	Buffer    string
	Regions   *region.Map
	Staged    *remote.Staging
	VerifyAll bool // every extent that a read touches is verified
	Linear    bool // the daemon lays the bytes out for Mapping.InPlace, if it can
}

// Address is bb://BUFFER/path, for messages.
func (s *Source) Address(path string) string {
	return bb.Address{Buffer: s.Buffer, Path: path}.String()
}

// errClosedFile is the error of operations on a closed file.
func errClosedFile(op, path string) error {
	return &bb.Error{Kind: bb.Invalid, Op: op, Path: path, Err: fs.ErrClosed}
}
