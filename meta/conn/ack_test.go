package conn

import (
	"testing"
)

func FuzzParseAck(f *testing.F) {
	for _, s := range []string{
		`{"stream":"KV_x","seq":123}`, `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"x","seq":0}`,
		`{"stream":"x","seq":9,"batch":"b","count":2}`, `{"seq":99999999999999999999999}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if seq, err := ParseAck(b); (err == nil) != (seq > 0) {
			t.Fatalf("%q: %d %v", b, seq, err)
		}
	})
}
