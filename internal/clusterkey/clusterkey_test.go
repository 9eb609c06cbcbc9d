package clusterkey

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/internal/bb"
)

func TestRead(t *testing.T) {
	one, two := string(New()), string(New())
	if one == two || len(one) != 64 {
		t.Fatalf("keys of %d characters", len(one))
	}
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		keys int
		kind bb.Kind
	}{
		"one":            {one + "\n", 0o600, 1, 0},
		"without an end": {one, 0o400, 1, 0},
		"two":            {"# new\n" + one + "\n\n  " + two + "  \r\n", 0o600, 2, 0},
		"none":           {"# nothing\n", 0o600, 0, bb.Invalid},
		"too many":       {strings.Repeat(one+"\n", Max+1), 0o600, 0, bb.Invalid},
		"short":          {one[:Min-1], 0o600, 0, bb.Invalid},
		"of a group":     {one, 0o640, 0, bb.Permission},
		"of all":         {one, 0o604, 0, bb.Permission},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		keys, err := Read(path)
		if len(keys) != c.keys || err != nil && bb.KindOf(err) != c.kind || (err == nil) != (c.kind == 0) {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
		if err != nil && strings.Contains(err.Error(), one[:16]) {
			t.Errorf("%s: the error tells the key", name)
		}
		if len(keys) > 0 && !bytes.Equal(keys[0], []byte(one)) {
			t.Errorf("%s: not the first key", name)
		}
	}
}
