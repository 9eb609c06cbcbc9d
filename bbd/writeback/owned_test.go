package writeback

import (
	"testing"

	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

func TestTraced(t *testing.T) {
	t.Parallel()
	plain, packed := bb.Flushed{Generation: 1}, bb.Flushed{Generation: 1, Codec: "zstd"}
	dir := namespace.StoreOp{Op: namespace.OpRename, IsDir: true, OldPath: "a", NewPath: "b"}
	for name, test := range map[string]struct {
		object string
		later  []namespace.StoreOp
		now    string
		known  bool
	}{
		"moved":                 {"a/f", nil, "b/f", false},
		"a similar name":        {"aa/f", nil, "aa/f", false},
		"moved twice":           {"a/f", []namespace.StoreOp{{Op: namespace.OpRename, IsDir: true, OldPath: "b", NewPath: "c"}}, "c/f", false},
		"removed later":         {"a/f", []namespace.StoreOp{{Op: namespace.OpRemove, OldPath: "b/f", Flushed: plain}}, "b/f", true},
		"renamed later":         {"a/f", []namespace.StoreOp{{Op: namespace.OpRename, OldPath: "b/f", NewPath: "g", Flushed: plain}}, "b/f", true},
		"replaced later":        {"a/f", []namespace.StoreOp{{Op: namespace.OpRename, OldPath: "g", NewPath: "b/f", Flushed: plain, Replaced: plain}}, "b/f", true},
		"an older version":      {"a/f", []namespace.StoreOp{{Op: namespace.OpRemove, OldPath: "b/f", Left: plain}}, "b/f", true},
		"with a codec":          {"a/f.zst", []namespace.StoreOp{{Op: namespace.OpRemove, OldPath: "b/f", Flushed: packed}}, "b/f.zst", true},
		"not the flushed codec": {"a/f", []namespace.StoreOp{{Op: namespace.OpRemove, OldPath: "b/f", Flushed: packed}}, "b/f", false},
		"put, not recorded":     {"a/f", []namespace.StoreOp{{Op: namespace.OpRemove, OldPath: "b/f", Attempts: []bb.Content{{Size: 1}}}}, "b/f", true},
		"never flushed":         {"a/f", []namespace.StoreOp{{Op: namespace.OpRemove, OldPath: "b/f"}}, "b/f", false},
		"its directory removed": {"a/f", []namespace.StoreOp{{Op: namespace.OpRemove, IsDir: true, OldPath: "b"}}, "b/f", false},
	} {
		o := owned{Owned: storeop.Owned{Object: test.object}}
		if now := o.trace(append([]namespace.StoreOp{dir}, test.later...)); now != test.now || o.any() != test.known {
			t.Errorf("%s: %q, %v, want %q, %v", name, now, o.any(), test.now, test.known)
		}
	}
}
