package flusher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/open"
	"forebay/flusher/codec"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/internal/s3test"
)

// TestForeignObjects flushes over objects that this buffer did not write, on stores of each kind.
func TestForeignObjects(t *testing.T) {
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	for name, url := range map[string]string{"posix": "file://" + t.TempDir(), "s3": server.URL(server.Bucket(t, "bucket"), "prefix")} {
		for size, content := range map[string]string{"small": "ours", "parts": string(bytes.Repeat([]byte("ours"), 5<<20))} {
			t.Run(name+" "+size, func(t *testing.T) {
				store, err := open.Open(t.Context(), url, open.Options{Owner: backing.NewOwner(1)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				foreignObjects(t, store, size, content)
			})
		}
	}
}

func foreignObjects(t *testing.T, store backing.Store, name, content string) {
	w := newWorld(t)
	f := w.start(store, func(o *Options) { o.Policy = func(string) Policy { return Policy{KeepExisting: true} } })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	has := func(want string) {
		t.Helper()
		r, err := store.Get(ctx, name, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := io.ReadAll(r); err != nil || string(got) != want {
			t.Fatalf("the store has %.20q (%d bytes), %v; want %.20q", got, len(got), err, want)
		}
	}
	put := func(content string) bb.Flushed {
		t.Helper()
		o, err := store.Put(ctx, name, backing.NewBytes([]byte(content)), backing.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return bb.Flushed{Generation: 1, ETag: o.ETag, Size: o.Size, Checksum: o.Checksum}
	}
	refused := func() {
		t.Helper()
		if _, err := f.Drain(ctx, w.buffer, nil); err == nil || !failedWith(f, w.buffer, backing.ErrForeign) {
			t.Fatalf("drain: %v, %+v", err, f.BufferStats(w.buffer))
		}
	}
	flushed := func(key Key) {
		t.Helper()
		if err := f.Wait(ctx, key); err != nil {
			t.Fatal(err)
		}
	}

	put("theirs")
	w.write(name, content)
	refused()
	has("theirs")
	if err := store.Remove(ctx, name); err != nil {
		t.Fatal(err)
	}
	flushed(w.write(name, content+"2"))
	has(content + "2")
	flushed(w.write(name, content+"3")) // its own
	has(content + "3")
	put(content + "3") // the same content under another tag
	flushed(w.write(name, content+"4"))
	has(content + "4")
	put("theirs again")
	w.write(name, content+"5")
	refused()
	has("theirs again")

	// Its removal leaves objects of others, and removes its own.
	w.mu.Lock()
	was := w.mu.files[name].flushed
	w.mu.Unlock()
	w.remove(name)
	f.Apply(w.buffer, storeop.Op{Kind: storeop.Remove, Old: name, Was: []bb.Flushed{was}})
	if _, err := f.Drain(ctx, w.buffer, nil); err != nil {
		t.Fatal(err)
	}
	has("theirs again")
	f.Apply(w.buffer, storeop.Op{Kind: storeop.Remove, Old: name, Was: []bb.Flushed{put("ours")}})
	if _, err := f.Drain(ctx, w.buffer, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Stat(ctx, name); bb.KindOf(err) != bb.NotFound {
		t.Fatalf("an object of the buffer's stays after its removal: %v", err)
	}

	// A decision for one content replaces the present object. The next content is compared again.
	put("theirs")
	key := w.write(name, content)
	refused()
	if n := f.BufferStats(w.buffer).Conflicts; n != 1 {
		t.Fatalf("%d files are in conflict, want 1", n)
	}
	f.Overwrite(w.buffer, "", []Key{key})
	flushed(key)
	has(content)
	if n := f.BufferStats(w.buffer).Conflicts; n != 0 {
		t.Fatalf("%d files are in conflict, want none", n)
	}
	put("theirs again")
	w.write(name, content+content)
	refused()
	has("theirs again")
}

// TestForeignCompressed removes the compressed object that a flush may have put, and nothing else.
func TestForeignCompressed(t *testing.T) {
	w, store := newWorld(t), memStore()
	f := w.start(store, func(o *Options) {
		o.Policy = func(string) Policy { return Policy{KeepExisting: true, Codec: codec.Zstd} }
	})
	packed := func(content string) []byte {
		var out bytes.Buffer
		z, err := codec.NewWriter(codec.Zstd, &out)
		if err == nil {
			_, err = z.Write([]byte(content))
		}
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for name, p := range map[string][]byte{"ours": packed("ours"), "theirs": packed("theirs"), "plain": []byte("not compressed")} {
		if _, err := store.Put(t.Context(), name+".zst", backing.NewBytes(p), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		attempt := backing.NewBytes([]byte("ours"))
		f.Apply(w.buffer, storeop.Op{Kind: storeop.Remove, Old: name, Codec: codec.Zstd, Attempts: []bb.Content{{Size: attempt.Size(), Checksum: attempt.Checksum()}}})
	}
	if _, err := f.Drain(t.Context(), w.buffer, nil); err != nil {
		t.Fatal(err)
	}
	left := slices.Sorted(maps.Keys(store.Contents()))
	if want := []string{"plain.zst", "theirs.zst"}; !slices.Equal(left, want) {
		t.Errorf("the store has %q, want %q", left, want)
	}
}

// failedWith reports whether a buffer's last error is a certain one.
func failedWith(f *Flusher, buffer string, want error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Is(f.queue(buffer).stats.last.err, want)
}
