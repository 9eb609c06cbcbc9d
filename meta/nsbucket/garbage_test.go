package nsbucket

import (
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/nsbucket/record"
)

func TestGarbageInTheBucket(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		create(t, ns, bb.RootDir, "good")
		for key, data := range map[string]string{
			record.EntryKey(bb.RootDir, "bad"):   "\x01garbage, not a record",
			record.EntryKey(bb.RootDir, "new"):   "\x7fof a later version",
			"e.1.=61":                            "a name that is not written like that",
			record.OpPrefix + "5":                "garbage",
			record.EntryKey(bb.RootDir, "good2"): "",
		} {
			if _, err := ns.b.Put(ctx, key, []byte(data), 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := names(t, ns, bb.RootDir); len(got) != 1 || got[0] != "good" {
			t.Errorf("listed %q", got)
		}
		n := 0
		if err := ns.ScanAll(ctx, func(bb.Entry) error { n++; return nil }); err != nil || n != 1 {
			t.Errorf("scanned %d: %v", n, err)
		}
		_, err := ns.Lookup(ctx, bb.RootDir, "bad")
		metatest.WantKind(t, "lookup of garbage", err, bb.Checksum)
		_, err = ns.Lookup(ctx, bb.RootDir, "new")
		metatest.WantKind(t, "lookup of a later version", err, bb.Unsupported)
		if ops, err := ns.StoreOps(ctx); err != nil || len(ops) != 0 {
			t.Errorf("%v %v", ops, err)
		}
		if connOf(ns).UnreadableCount() < 6 {
			t.Errorf("counted %d", connOf(ns).UnreadableCount())
		}
	})
}
