// Package clustertest works a cluster with real client processes that record their answers, and checks
// afterwards whether all of them were true. It uses daemons as a client alone, and must never depend on their
// storage.
package clustertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Content returns the bytes of a seed: the seed itself (8 bytes, little endian), then ChaCha8 of
// it, cut off at size. So the expected bytes follow from a read of the first ones, and a file that
// grows in the same content stays a prefix of it.
func Content(seed uint64, size int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := binary.LittleEndian.AppendUint64(make([]byte, 0, max(size, 8)), seed)
	p = p[:max(size, 8)]
	rand.NewChaCha8(key).Read(p[8:])
	return p[:size]
}

// A Version is the target of a path: nothing, an empty file, or the first Size bytes of the Content
// of a Seed.
type Version struct {
	Seed uint64 `json:"seed,omitempty"`
	Size int    `json:"size,omitempty"`
}

// Versions without a seed. Seeds of files begin above.
var (
	Absent = Version{}
	Empty  = Version{Seed: 1}
)

// MinSize is the size of the smallest content with its seed.
const MinSize = 16

// Identify returns which version bytes are.
func Identify(p []byte) (Version, error) {
	if len(p) == 0 {
		return Empty, nil
	}
	if len(p) < MinSize {
		return Absent, fmt.Errorf("%d bytes, fewer than were ever written", len(p))
	}
	v := Version{binary.LittleEndian.Uint64(p), len(p)}
	for i, want := range Content(v.Seed, v.Size) {
		if p[i] != want {
			return Absent, fmt.Errorf("byte %d of %d is %#02x, which is not of the seed %#x that it begins with", i, len(p), p[i], v.Seed)
		}
	}
	return v, nil
}

func (v Version) String() string {
	switch v {
	case Absent:
		return "nothing"
	case Empty:
		return "an empty file"
	default:
		return fmt.Sprintf("%d bytes of seed %#x", v.Size, v.Seed)
	}
}

// StoreFiles reads all files below a folder but those that the flusher works on, by
// their paths in it.
func StoreFiles(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".forebay-") {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the flusher renamed it meanwhile
		}
		name, _ := filepath.Rel(root, path)
		files[name] = text
		return err
	})
	return files, err
}
