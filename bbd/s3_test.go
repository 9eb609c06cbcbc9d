package bbd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/codec"
	"forebay/internal/s3test"
)

// s3Node is a daemon whose credentials are those of a real S3 server.
func s3Node(t *testing.T, change func(*bbd.Config)) (*node, *s3test.Server, string) {
	t.Helper()
	server := s3Credentials(t)
	n := startNode(t, func(cfg *bbd.Config) {
		// Large enough to be uploaded in parts is 5 MiB here, not 32.
		cfg.Backing.S3.PartSize, cfg.Backing.S3.Threshold = 5<<20, 5<<20
		if change != nil {
			change(cfg)
		}
	})
	return n, server, server.Bucket(t, "results")
}

// s3Credentials starts an S3 server and sets the environment for its users.
func s3Credentials(t *testing.T) *s3test.Server {
	t.Helper()
	server := s3test.Start(t)
	for _, v := range server.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	return server
}

// objects returns the content of a bucket, by name.
func objects(t *testing.T, server *s3test.Server, bucket, prefix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	root := server.File(bucket, prefix)
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() || strings.Contains(p, "/.sgwtmp/") {
			return err
		}
		text, err := os.ReadFile(p)
		name, _ := filepath.Rel(root, p)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantObjects(t *testing.T, have map[string]string, want map[string][]byte) {
	t.Helper()
	for name, content := range want {
		if have[name] != string(content) {
			t.Errorf("object %s has %d bytes that are not the %d written", name, len(have[name]), len(content))
		}
		delete(have, name)
	}
	for name := range have {
		t.Errorf("object %s should not be there", name)
	}
}

func TestS3WriteDrainRenameRemove(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "s3", Backing: server.URL(bucket, "run/7")})
	ctx := t.Context()
	want := map[string][]byte{}
	for _, size := range []int{0, 1, 5000, 5 << 20, 12<<20 + 345} {
		name := fmt.Sprintf("dir with space/%d ü+%%", size)
		if err := b.MkdirAll(ctx, filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		want[name] = random(size)
		write(t, b, name, want[name])
	}
	drain(t, c, "s3")
	wantObjects(t, objects(t, server, bucket, "run/7"), want)

	move := func(from, to string) {
		if err := b.Rename(ctx, from, to); err != nil {
			t.Fatal(err)
		}
		want[to] = want[from]
		delete(want, from)
	}
	move("dir with space/5000 ü+%", "moved")
	move(fmt.Sprintf("dir with space/%d ü+%%", 12<<20+345), "large")
	if err := b.Remove(ctx, "dir with space/1 ü+%"); err != nil {
		t.Fatal(err)
	}
	delete(want, "dir with space/1 ü+%")
	if err := b.Rename(ctx, "dir with space", "d"); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		if rest, ok := strings.CutPrefix(name, "dir with space/"); ok {
			delete(want, name)
			want["d/"+rest] = content
		}
	}
	write(t, b, "moved", random(777)) // a new generation of the renamed file
	want["moved"], _ = b.ReadFile(ctx, "moved")
	drain(t, c, "s3")
	wantObjects(t, objects(t, server, bucket, "run/7"), want)

	n.loseMemory()
	c = n.dial()
	for name, content := range want {
		wantFile(t, c.Buffer("s3"), name, content)
	}
}

// loseMemory restarts the daemon as after a reboot.
func (n *node) loseMemory() {
	n.t.Helper()
	n.stop()
	if err := os.RemoveAll(n.shm()); err != nil {
		n.t.Fatal(err)
	}
	n.start()
}

func TestS3Codec(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "packed", Codec: codec.Zstd, Backing: server.URL(bucket, "z")})
	contents := map[string][]byte{
		"empty": {}, "small": []byte("hello"), "noise": random(1 << 20),
		"text": bytes.Repeat([]byte("all work and no play "), 600_000),
	}
	for name, content := range contents {
		write(t, b, name, content)
	}
	drain(t, c, "packed")
	have := objects(t, server, bucket, "z")
	for name, content := range contents {
		stored, ok := have[name+codec.Suffix(codec.Zstd)]
		if !ok {
			t.Errorf("%s is not stored under its codec's name: %d objects", name, len(have))
			continue
		}
		if got := unpacked(t, stored); got != string(content) {
			t.Errorf("%s in the store decodes to %d bytes, not the %d written", name, len(got), len(content))
		}
	}
	if len(have["text.zst"]) > len(contents["text"])/10 {
		t.Errorf("text of %d bytes is stored in %d", len(contents["text"]), len(have["text.zst"]))
	}
	n.loseMemory()
	c = n.dial()
	for name, content := range contents {
		wantFile(t, c.Buffer("packed"), name, content)
	}
}

// Files that more than fill memory are evicted and come back in pieces.
func TestS3Eviction(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "ev", Backing: server.URL(bucket, "")})
	contents := map[string][]byte{}
	evicted := n.evicted(c, b, contents)
	for at := range int64(9) { // a part of it may be in memory still
		flipByte(t, server.File(bucket, evicted), at<<20+1000)
	}
	if got, err := b.ReadFile(t.Context(), evicted); !errors.Is(err, client.ErrChecksum) {
		t.Errorf("an evicted file whose object is damaged: %d bytes, %v", len(got), err)
	} else if !strings.Contains(err.Error(), evicted) {
		t.Errorf("the error does not name the file: %v", err)
	}
	for name, content := range contents {
		if name != evicted {
			wantFile(t, b, name, content)
		}
	}
}

func flipByte(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var p [1]byte
	if _, err := f.ReadAt(p[:], at); err != nil {
		t.Fatal(err)
	}
	p[0] ^= 0x10
	if _, err := f.WriteAt(p[:], at); err != nil {
		t.Fatal(err)
	}
}

func TestS3VerifyFindsDamage(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "sure", Backing: server.URL(bucket, "p")})
	contents := map[string][]byte{"a": random(3000), "b": random(7 << 20), "c": random(11)}
	for name, content := range contents {
		write(t, b, name, content)
	}
	drain(t, c, "sure")
	var receipt bytes.Buffer
	if err := admin.Receipt(t.Context(), c, "sure", &receipt); err != nil {
		t.Fatal(err)
	}
	for _, deep := range []bool{false, true} {
		report, err := admin.Verify(t.Context(), c, bytes.NewReader(receipt.Bytes()), admin.VerifyOptions{Deep: deep})
		if err != nil || report.FilesDone != 3 || report.FailedTotal != 0 {
			t.Errorf("verify (deep %v): %+v (%v)", deep, report, err)
		}
	}
	flipByte(t, server.File(bucket, "p/b"), 6<<20)
	report, _ := admin.Verify(t.Context(), c, bytes.NewReader(receipt.Bytes()), admin.VerifyOptions{Deep: true})
	if report.FailedTotal != 1 || len(report.Failed) != 1 || report.Failed[0].Path != "b" || report.Failed[0].Kind != client.ErrChecksum {
		t.Errorf("verify of a damaged object: %+v", report)
	}
	wantFile(t, b, "b", contents["b"]) // memory has it still
	n.loseMemory()
	c = n.dial()
	b = c.Buffer("sure")
	for range 2 { // the second time must not find files of the first
		if got, err := b.ReadFile(t.Context(), "b"); !errors.Is(err, client.ErrChecksum) {
			t.Errorf("reading what is damaged: %d bytes, %v", len(got), err)
		}
	}
	wantFile(t, b, "a", contents["a"])
	wantFile(t, b, "c", contents["c"])
}

func TestS3Stage(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	in := map[string][]byte{"x": random(100), "d/y": random(6 << 20), "d/e/z": {}}
	for name, content := range in {
		path := server.File(bucket, "in/"+name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := n.buffer(c, admin.BufferSpec{Name: "st", Backing: server.URL(bucket, "own")})
	ctx := t.Context()
	request := admin.StageRequest{Buffer: "st", Path: "data", URL: server.URL(bucket, "in")}
	first, err := admin.StageIn(ctx, c, request, nil)
	if err != nil || first.FilesDone != 3 || first.FilesSkipped != 0 {
		t.Fatalf("stage-in: %+v (%v)", first, err)
	}
	for name, content := range in {
		wantFile(t, b, "data/"+name, content)
	}
	second, err := admin.StageIn(ctx, c, request, nil)
	if err != nil || second.FilesSkipped != 3 || second.BytesDone != 0 && second.FilesDone != second.FilesSkipped {
		t.Errorf("the second stage-in: %+v (%v)", second, err)
	}
	out, err := admin.StageOut(ctx, c, admin.StageRequest{Buffer: "st", Path: "data", URL: server.URL(bucket, "out")}, nil)
	if err != nil || out.FilesDone != 3 {
		t.Errorf("stage-out: %+v (%v)", out, err)
	}
	wantObjects(t, objects(t, server, bucket, "out"), in)
	_, err = admin.StageIn(ctx, c, admin.StageRequest{Buffer: "st", Path: "q", URL: server.URL(bucket, "nothing-here")}, nil)
	if !errors.Is(err, client.ErrNotFound) {
		t.Errorf("stage-in from a prefix that is empty: %v", err)
	}
}

// A wrong setting is refused when the buffer is created, and leaves nothing.
func TestS3BadBackings(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	query := url.Values{"endpoint": {server.Endpoint}, "path_style": {"true"}}.Encode()
	refused := func(what, backing string, kind client.Kind) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "bad", Backing: backing})
		if !errors.Is(err, kind) {
			t.Errorf("%s (%s): %v, want kind %v", what, backing, err, kind)
			admin.DiscardBuffer(ctx, c, "bad")
		} else {
			t.Logf("%s: %v", what, err)
		}
		if all, err := admin.Buffers(ctx, c); err != nil || len(all) != 0 {
			t.Errorf("%s left %+v (%v)", what, all, err)
		}
		if have := objects(t, server, bucket, ""); len(have) != 0 {
			t.Errorf("%s left %d objects", what, len(have))
		}
	}
	refused("a missing bucket", server.URL("absent", ""), client.ErrNotFound)
	refused("no bucket", "s3:///prefix?"+query, client.ErrInvalid)
	refused("a port for a bucket", "s3://bucket:99/?"+query, client.ErrInvalid)
	refused("credentials in the URL", "s3://me:secret@results/?"+query, client.ErrInvalid)
	refused("dots", "s3://results/../x?"+query, client.ErrInvalid)
	refused("an unknown parameter", "s3://results/x?colour=red&"+query, client.ErrInvalid)
	refused("a boolean that is none", "s3://results/x?path_style=perhaps&endpoint="+server.Endpoint, client.ErrInvalid)
	refused("an endpoint that is no URL", "s3://results/x?endpoint=nonsense", client.ErrInvalid)
	refused("a scheme nobody knows", "gopher://results/x", client.ErrInvalid)
	refused("a malformed escape", "s3://results/%zz?"+query, client.ErrInvalid)
	refused("nobody at the endpoint", "s3://results/x?path_style=true&endpoint=http://127.0.0.1:1", client.ErrUnavailable)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	refused("wrong credentials", server.URL(bucket, "x"), client.ErrPermission)
}

func unpacked(t *testing.T, stored string) string {
	t.Helper()
	from, err := codec.NewReader("zstd", strings.NewReader(stored))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	all, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// TestS3KeepsAttributes: files keep their modes and times on S3, empty directories are there as
// markers, and a stage-in has all of that, also into files that are there.
func TestS3KeepsAttributes(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	from := server.URL(bucket, "run")
	b, _ := n.buffer(c, admin.BufferSpec{Name: "s3", Backing: from})
	ctx, when := t.Context(), time.Unix(1_600_000_000, 123_456_789)
	mode, dirMode := fs.FileMode(0o751), fs.FileMode(0o700)
	content := map[string][]byte{"small": random(10), "empty": nil, "dir/large": random(12 << 20)}
	for _, dir := range []string{"dir/none", "gone"} {
		if err := b.MkdirAll(ctx, dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, bytes := range content {
		write(t, b, name+".tmp", bytes) // a name that is held back; it is not flushed before it has its mode
		if _, err := b.SetAttr(ctx, name+".tmp", client.Attr{Mode: &mode, ModTime: &when}); err != nil {
			t.Fatal(err)
		}
		if err := b.SetXattr(ctx, name+".tmp", "user.origin", []byte(name)); err != nil {
			t.Fatal(err)
		}
		if err := b.Rename(ctx, name+".tmp", name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.SetAttr(ctx, "dir/none", client.Attr{Mode: &dirMode, ModTime: &when}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.SetXattr(ctx, "dir/none", "user.origin", []byte("dir/none")), b.Symlink(ctx, "../small", "dir/link")); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "s3")
	into, _ := n.buffer(c, admin.BufferSpec{Name: "into"})
	stageIn := func(url string, skipped int64) {
		t.Helper()
		r, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: "into", Path: "x", URL: url}, nil)
		if err != nil || r.FailedTotal != 0 || r.FilesDone != 4 || r.FilesSkipped != skipped {
			t.Fatalf("stage-in: %+v (%v)", r, err)
		}
		for name, bytes := range content {
			wantFile(t, into, "x/"+name, bytes)
			wantXattrs(t, into, "x/"+name, map[string]string{"user.origin": name})
			if e, err := into.Stat(ctx, "x/"+name); err != nil || e.Mode.Perm() != mode || !e.ModTime.Equal(when) {
				t.Errorf("%s: %v of %v (%v)", name, e.Mode, e.ModTime, err)
			}
		}
		if e, err := into.Stat(ctx, "x/dir/none"); err != nil || !e.IsDir() || e.Mode.Perm() != dirMode || !e.ModTime.Equal(when) {
			t.Errorf("the empty directory: %v of %v (%v)", e.Mode, e.ModTime, err)
		}
		wantXattrs(t, into, "x/dir/none", map[string]string{"user.origin": "dir/none"})
		if target, err := into.Readlink(ctx, "x/dir/link"); err != nil || target != "../small" {
			t.Errorf("the link leads to %q (%v)", target, err)
		}
	}
	stageIn(from, 0)
	other := fs.FileMode(0o600)
	if _, err := into.SetAttr(ctx, "x/small", client.Attr{Mode: &other}); err != nil {
		t.Fatal(err)
	}
	stageIn(from, 4)
	write(t, into, "x/small", random(11)) // another content in its place
	stageIn(from, 3)

	// Staged out again, to another place. An empty directory that goes takes its marker along.
	out := server.URL(bucket, "copy")
	if r, err := admin.StageOut(ctx, c, admin.StageRequest{Buffer: "into", Path: "x", URL: out}, nil); err != nil || r.FilesDone != 4 {
		t.Fatalf("stage-out: %+v (%v)", r, err)
	}
	if err := into.RemoveAll(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	stageIn(out, 0)
	if _, err := os.Stat(server.File(bucket, "run/gone")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(b.Remove(ctx, "gone"), b.Rename(ctx, "dir", "moved")); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "s3")
	for _, gone := range []string{"run/gone", "run/dir"} {
		if _, err := os.Stat(server.File(bucket, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there (%v)", gone, err)
		}
	}
	if info, err := os.Stat(server.File(bucket, "run/moved/none")); err != nil || !info.IsDir() {
		t.Errorf("the renamed one: %v", err)
	}
}
