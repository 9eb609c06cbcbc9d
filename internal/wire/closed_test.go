package wire

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
)

// closed has the keys of the records that messages hold as JSON, and of the records in these.
var closed = map[string]string{
	"bb.Event":            "time kind buffer path generation bytes node reason",
	"bb.Operation":        "id kind buffer path url uid state created ended tasks running tasks_done files files_done skipped bytes bytes_done bytes_not_copied failed failed_total held_total open_total last_error nodes",
	"bb.OperationFailure": "path kind reason bytes",
	"bb.OperationShare":   "files bytes",
	"bb.Lifetime":         "key cluster job user uid gid buffer uses destroys stage_in stage_out expect governed ran over pool granted due warn warned state created ended gone succeeded hurry reason attempt next nodes bill",
	"bb.Attachment":       "node instance attached since failed figures late",
	"bb.LifetimeEnd":      "buffer discard",
	"bb.LifetimeStage":    "buffer path url continue_on_error on_success done attempt note bytes seconds",
	"bb.LossReport":       "files total bytes buffers",
	"bb.LossLine":         "path bytes reason",
	"bb.LossSum":          "total bytes",
	"bb.Usage":            "absorbed blocked peak_dirty failures flushed flushing",
}

// TestJSONIsClosed: a record that a message holds as JSON gets no further key. JSON has no schema
// that clients in other languages are generated from, and a daemon of an older release drops a key
// that it does not have when it changes a record. Instead, a further field becomes a field of the
// message, beside json, and has the tag json:"-" in the record.
func TestJSONIsClosed(t *testing.T) {
	found := map[string]string{}
	for _, root := range []any{bb.Event{}, bb.Operation{}, bb.Lifetime{}, bb.Attachment{}} {
		collect(found, reflect.TypeOf(root))
	}
	for record, keys := range found {
		if closed[record] != keys {
			t.Errorf("%s has the keys %q in JSON, not %q", record, keys, closed[record])
		}
	}
	if len(found) != len(closed) {
		t.Errorf("%d records, not %d", len(found), len(closed))
	}
}

// collect notes the keys of a record of package bb, and of the records in it.
func collect(found map[string]string, x reflect.Type) {
	for slices.Contains([]reflect.Kind{reflect.Slice, reflect.Pointer, reflect.Map, reflect.Array}, x.Kind()) {
		x = x.Elem()
	}
	if _, seen := found[x.String()]; seen || x.Kind() != reflect.Struct || x.PkgPath() != reflect.TypeFor[bb.Event]().PkgPath() {
		return
	}
	var keys []string
	found[x.String()] = ""
	for f := range x.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case key == "-" || !f.IsExported():
			continue
		case key == "":
			key = f.Name
		}
		keys = append(keys, key)
		collect(found, f.Type)
	}
	found[x.String()] = strings.Join(keys, " ")
}
