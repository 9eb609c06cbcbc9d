package flusher

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/open"
	"forebay/flusher/backing/retry"
	"forebay/internal/bb"
	"forebay/internal/s3test"
)

// TestRealStores flushes, renames and removes on a directory and on a real S3
// server that fail now and then, and compares them with the namespace.
func TestRealStores(t *testing.T) {
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	for name, url := range map[string]string{"posix": "file://" + t.TempDir(), "s3": server.URL(server.Bucket(t, "bucket"), "prefix")} {
		for _, codec := range []string{"", "zstd"} {
			t.Run(name+" "+codec, func(t *testing.T) { realStore(t, url, codec) })
		}
	}
}

func realStore(t *testing.T, url, codecName string) {
	var rules []fault.Rule
	for i := range 30 {
		rules = append(rules, fault.Rule{Op: []string{"put", "rename", "remove"}[i%3], Kind: []fault.Kind{fault.Reset, fault.Busy, fault.WrongChecksum}[i%2], Skip: 3, Count: 1})
	}
	store, err := open.Open(t.Context(), url, open.Options{
		Owner: backing.NewOwner(1), Faults: fault.NewPlan(rules...), Retry: retry.Options{Attempts: 2, Min: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w := newWorld(t)
	f := w.start(store, func(o *Options) {
		o.SpoolDir = t.TempDir()
		o.Policy = func(string) Policy { return Policy{Codec: codecName, NoFlush: bb.DefaultNoFlush()} }
	})
	churn(w)
	w.expectStore(func() map[string][]byte { return contentsOf(t, f, store, codecName) })
	for p := range w.contents() {
		w.remove(p)
	}
	w.expectStore(func() map[string][]byte { return contentsOf(t, f, store, codecName) })
	if n, err := store.Sweep(t.Context()); n != 0 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
}

// churn writes, renames and removes at random.
func churn(w *world) {
	r := rand.New(rand.NewPCG(1, 1))
	names := func() string { return fmt.Sprintf("d%d/f%d", r.IntN(3), r.IntN(4)) }
	for i := range 80 {
		switch r.IntN(6) {
		default:
			w.write(names(), fmt.Sprintf("content %d %s", i, strings.Repeat("x", r.IntN(20_000))))
		case 3, 4:
			if from, to := names(), names(); from != to {
				w.rename(from, to)
			}
		case 5:
			w.remove(names())
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	}
	w.write("out/_temporary/0/part", "part")
	w.rename("out/_temporary/0", "out/0")
}

// contentsOf reads all of a store, by the names that files have in the buffer.
func contentsOf(t *testing.T, f *Flusher, store backing.Store, codecName string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	suffix := map[string]string{"": "", "zstd": ".zst"}[codecName]
	err := store.List(t.Context(), "", func(o backing.Object) error {
		name, ok := strings.CutSuffix(o.Name, suffix)
		if !ok {
			t.Errorf("the store has %s", o.Name)
			return nil
		}
		r, err := f.Read(t.Context(), "buf", name, codecName, 0)
		if err != nil {
			return err
		}
		defer r.Close()
		all[name], err = io.ReadAll(r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
