package meta

import (
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
)

// TestFlushRulesOfRecord: the flush rules of a buffer come back, but for one that this release cannot read.
func TestFlushRulesOfRecord(t *testing.T) {
	t.Parallel()
	rules := bb.FlushRules([]string{"step-*/=every 5,complete with done", "s-*/=of a newer release", "*/=last at end of job"})
	record, err := sealBuffer("buffer.b", &bb.Buffer{Name: "b", Flush: rules, Created: time.Unix(1, 0)}, keptIn{3, EngineLog})
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := openBuffer("buffer.b", record, 1)
	if got := bb.FlushRuleTexts(b.Flush); err != nil || !slices.Equal(got, []string{"step-*/=every 5,complete with done", "*/=last at end of job"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzBufferRecord(f *testing.F) {
	b, err := sealBuffer("buffer.b", &bb.Buffer{Name: "b", NoFlush: bb.DefaultNoFlush(), Created: time.Unix(1, 0)}, keptIn{3, EngineLog})
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
