package batch

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
)

// TestRecordFields: the fields beside the JSON of a record come back, and a change of a record keeps those of a newer release.
func TestRecordFields(t *testing.T) {
	t.Parallel()
	run := bb.Lifetime{Key: "job-1", Superseded: []bb.SupersededSteps{
		{Buffer: "job-1", Total: 2, Files: 6, Bytes: 10, Steps: []bb.SupersededStep{{Step: "step-4", By: "step-7", Files: 3, Bytes: 5}}},
		{Buffer: "other", Total: 1},
	}}
	stay := bb.Attachment{Node: "n1", Usage: bb.Usage{Absorbed: 7, Dropped: 3, DroppedBytes: 12}}
	newer := string(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 5))
	for _, rest := range []string{"", newer} {
		run.Rest, stay.Rest = rest, rest
		data, err := sealRun(&run)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := openRun(&kv.Record{Key: runKey("job-1"), Data: data}); err != nil || !reflect.DeepEqual(got, run) {
			t.Errorf("a job: %+v, %v; want %+v", got, err, run)
		}
		key := attachmentKey("job-1", "n1")
		if data, err = sealAttachment(key, &stay); err != nil {
			t.Fatal(err)
		}
		if got, err := openAttachment(&kv.Record{Key: key, Data: data}); err != nil || !reflect.DeepEqual(got, stay) {
			t.Errorf("its stay on a node: %+v, %v; want %+v", got, err, stay)
		}
	}
	// A record of an older release has JSON alone.
	data, err := kv.Seal(runKey("job-1"), &metapb.Lifetime{Json: []byte(`{"key":"job-1"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := openRun(&kv.Record{Key: runKey("job-1"), Data: data}); err != nil || !reflect.DeepEqual(got, bb.Lifetime{Key: "job-1"}) {
		t.Errorf("a job of an older release: %+v, %v", got, err)
	}
}
