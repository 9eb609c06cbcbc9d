package receipt

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"forebay/internal/bb"
)

func FuzzReceipt(f *testing.F) {
	full := Receipt{Path: "a b/ü", Size: 10, Checksum: 1 << 63, Codec: "zstd", StoredSize: 5, StoredSum: 3, ETag: "\"x\"", At: time.Unix(1e9, 5), By: "n", Layout: "-c 4 -S 1M"}
	for _, r := range []Receipt{full, {Path: "p"}, {Path: "l", Link: true}, {Path: "p", Size: 1, StoredSize: 1, Checksum: 7, StoredSum: 7}} {
		text, err := r.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"path":"../x","size":-1,"crc64nvme":"zz"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			if !errors.Is(err, bb.Invalid) {
				t.Fatal(err)
			}
			return
		}
		again, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Parse(again)
		if err != nil || !second.At.Equal(r.At) {
			t.Fatalf("%q: %v", again, err)
		}
		second.At = r.At
		if !reflect.DeepEqual(second, r) {
			t.Fatalf("%+v became %+v", r, second)
		}
	})
}
