package codec

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func encode(t testing.TB, name string, pieces ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(name, &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decode(t testing.TB, name string, r io.Reader, size int64, sum uint64) ([]byte, error) {
	t.Helper()
	plain, err := NewReader(name, r)
	if err != nil {
		t.Fatal(err)
	}
	v := Verify(plain, size, sum)
	b, err := io.ReadAll(v)
	return b, errors.Join(err, v.Close(), v.Close())
}

var texts = map[string][]byte{
	"nothing": nil, "a byte": {7}, "text": bytes.Repeat([]byte("a burst of text "), 100_000), "zeros": make([]byte, 3<<20),
}

func TestRoundTrip(t *testing.T) {
	for _, name := range []string{None, Zstd, S2} {
		for what, content := range texts {
			half := len(content) / 3
			packed := encode(t, name, content[:half], nil, content[half:])
			if name != None && len(content) > 1000 && len(packed) > len(content)/5 {
				t.Errorf("%s of %s: %d bytes of %d", name, what, len(packed), len(content))
			}
			got, err := decode(t, name, iotest.OneByteReader(bytes.NewReader(packed)), int64(len(content)), checksum.Sum(content))
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s of %s: %d bytes, %v", name, what, len(got), err)
			}
		}
	}
}

func TestDamageIsFound(t *testing.T) {
	content := make([]byte, 300_000) // that does not shrink, so that every byte of the stream counts
	rand.NewChaCha8([32]byte{1}).Read(content)
	for _, name := range []string{None, Zstd, S2} {
		packed := encode(t, name, content)
		damaged := bytes.Clone(packed)
		damaged[len(damaged)/2] ^= 4
		for what, stream := range map[string][]byte{
			"damaged": damaged, "truncated": packed[:len(packed)-1], "empty": nil, "twice": append(bytes.Clone(packed), packed...),
		} {
			got, err := decode(t, name, bytes.NewReader(stream), int64(len(content)), checksum.Sum(content))
			if !errors.Is(err, bb.Checksum) || len(got) > len(content) {
				t.Errorf("%s, %s: %d bytes, %v", name, what, len(got), err)
			}
		}
	}
}

// TestReadErrors are passed on as they are, since they are not the stream's fault.
func TestReadErrors(t *testing.T) {
	gone := bb.E(bb.Unavailable, "get", "f", "connection reset")
	for _, name := range []string{None, Zstd, S2} {
		packed := encode(t, name, texts["text"])
		r := io.MultiReader(bytes.NewReader(packed[:20]), iotest.ErrReader(gone))
		if _, err := decode(t, name, r, 1<<20, 0); !errors.Is(err, bb.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	if err := Check("gzip"); !errors.Is(err, bb.Invalid) {
		t.Error(err)
	}
	if _, err := NewReader("gzip", nil); !errors.Is(err, bb.Invalid) {
		t.Error(err)
	}
	if _, err := NewWriter("gzip", nil); !errors.Is(err, bb.Invalid) {
		t.Error(err)
	}
	for object, want := range map[string][2]string{
		"a.zst": {"a", Zstd}, "d/a.s2": {"d/a", S2}, "a": {"a", None}, "d/.zst": {"d/.zst", None}, ".s2": {".s2", None}, "a.zst.s2": {"a.zst", S2},
	} {
		if plain, name := OfName(object); plain != want[0] || name != want[1] {
			t.Errorf("%s: %s, %s", object, plain, name)
		}
	}
}

// TestOrdinaryTool reads our frames with zstd(1), where it is installed. The magic number also
// shows that the frame is standard.
func TestOrdinaryTool(t *testing.T) {
	content := texts["text"]
	packed := encode(t, Zstd, content)
	if !bytes.HasPrefix(packed, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		t.Fatalf("begins with % x, not as RFC 8878 says", packed[:4])
	}
	tool, err := exec.LookPath("zstd")
	if err != nil {
		return
	}
	cmd := exec.Command(tool, "-d", "-c")
	cmd.Stdin = bytes.NewReader(packed)
	got, err := cmd.Output()
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("zstd -d: %d bytes, %v", len(got), err)
	}
}

func FuzzReader(f *testing.F) {
	for _, name := range []string{Zstd, S2} {
		f.Add(name, encode(f, name, []byte("seed")))
		f.Add(name, encode(f, name, make([]byte, 10_000))[:20])
	}
	f.Add(Zstd, []byte(strings.Repeat("\x28\xb5\x2f\xfd", 4)))
	f.Fuzz(func(t *testing.T, name string, stream []byte) {
		if name != Zstd && name != S2 {
			return
		}
		got, err := decode(t, name, bytes.NewReader(stream), 1<<20, 0)
		if err == nil && checksum.Sum(got) != 0 {
			t.Fatalf("%d wrong bytes were accepted", len(got))
		}
		if len(got) > 1<<20 {
			t.Fatalf("%d bytes came of at most %d", len(got), 1<<20)
		}
	})
}
