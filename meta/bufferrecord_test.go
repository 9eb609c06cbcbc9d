package meta

import (
	"testing"
	"time"

	"forebay/internal/bb"
)

func FuzzBufferRecord(f *testing.F) {
	b, err := sealBuffer("buffer.b", &bb.Buffer{Name: "b", Keep: bb.DefaultKeep(), Created: time.Unix(1, 0)}, keptIn{3, EngineLog})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("buffer.b", b)
	f.Fuzz(func(t *testing.T, key string, b []byte) {
		if buffer, _, err := openBuffer(key, b, 1); err == nil && bb.CheckBufferName(buffer.Name) != nil {
			t.Fatalf("%+v", buffer)
		}
	})
}
