// Package clusterkey makes and reads files of cluster keys. It must never log a key,
// nor put one into an error.
package clusterkey

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"forebay/internal/bb"
)

const (
	// Min is the fewest characters that a key may have: those of 16 random bytes in
	// hexadecimal. A shorter one could be found by trials from a recorded handshake.
	Min = 32
	// Max is how many keys a file may hold. Changing keys takes two.
	Max = 4

	maxFile = 64 << 10 // bytes
)

// New returns a new key: 32 random bytes in hexadecimal.
func New() []byte {
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.AppendEncode(nil, b[:])
}

// Read reads the keys of a file, one a line. Empty lines and those that begin with # do not count.
// The reader encrypts and signs with the first, and accepts all. bb.Permission if others may read
// the file.
func Read(path string) ([][]byte, error) {
	text, err := ReadSecret(path)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case len(line) < Min:
			return nil, bb.E(bb.Invalid, "cluster key", path, fmt.Sprintf("a key has fewer than %d characters", Min)).
				WithRemedy("make one: bbctl cluster init DIR")
		}
		keys = append(keys, line)
	}
	if n := len(keys); n == 0 || n > Max {
		return nil, bb.E(bb.Invalid, "cluster key", path, fmt.Sprintf("the file holds %s, not 1 to %d", bb.Count(n, "key"), Max)).
			WithRemedy("make one: bbctl cluster init DIR")
	}
	return keys, nil
}

// ReadSecret reads a file that only its owner may be able to read. The mode is checked on the
// open file, so that no other file can be put in its place in between.
func ReadSecret(path string) ([]byte, error) {
	const op = "read secret"
	f, err := os.Open(path)
	if err != nil {
		return nil, bb.Wrap(op, path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, bb.Wrap(op, path, err)
	case !info.Mode().IsRegular():
		return nil, bb.E(bb.Invalid, op, path, "it is not a file")
	case info.Mode().Perm()&0o077 != 0:
		return nil, bb.E(bb.Permission, op, path, "other users can read it or change it").WithRemedy("chmod 600 " + path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = bb.E(bb.Invalid, op, path, "it is too large")
	}
	return text, bb.Wrap(op, path, err)
}
