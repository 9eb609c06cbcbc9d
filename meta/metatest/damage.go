package metatest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// StreamDir returns the folder in which a stopped server has a stream, by its own folder and the
// beginning of the stream's name.
func StreamDir(t testing.TB, dir, stream string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream+"*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the folders of %s are %q (%v)", stream, found, err)
	}
	return found[0]
}

// Blocks returns how many blocks a stopped server has of a stream, which were never purged.
func Blocks(t testing.TB, dir, stream string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(StreamDir(t, dir, stream), "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// HideBlock makes a block of a stream unreadable for a server that lists it, as on a medium with
// errors. The server must have stopped well, since one that has not reads all blocks when it
// starts.
func HideBlock(t testing.TB, dir, stream string, number int) {
	t.Helper()
	block := filepath.Join(StreamDir(t, dir, stream), "msgs", fmt.Sprintf("%d.blk", number))
	if err := errors.Join(os.Remove(block), os.Mkdir(block, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// FlipText turns the bits around of a text in the blocks of a stream, wherever that stands.
func FlipText(t testing.TB, dir, stream, text string) {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(StreamDir(t, dir, stream), "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, name := range blocks {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := bytes.Index(data, []byte(text)); at >= 0; at = bytes.Index(data, []byte(text)) {
			data[at] ^= 0xff
			hit++
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if hit == 0 {
		t.Fatalf("the stream %s has no message with %s", stream, text)
	}
}
