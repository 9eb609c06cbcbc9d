package hostiletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// Attacks with paths and URLs, which are of files that the attacker may not reach, and of files
// that are none.

// briefly is the timeout of a drain that may never end.
const briefly = 200 * time.Millisecond

func fileURL(path string) string { return "file://" + path }

// stageIn stages a URL in, which must be answered, and removes the result. It fails if the result
// has words which are not the attacker's.
func (a *attacker) stageIn(url string) (failure, err error) {
	ctx, cancel := a.within()
	defer cancel()
	at, b := a.name("in"), a.scratch()
	report, failure := admin.StageIn(ctx, a.c, admin.StageRequest{Buffer: scratchBuffer, Path: at, URL: url}, nil)
	if ctx.Err() != nil {
		return failure, fmt.Errorf("a stage-in of %s is not answered: %v", url, failure)
	}
	if failure == nil && len(report.Failed) > 0 {
		failure = report.Failed[0].Kind
	}
	if got, readErr := b.ReadFile(ctx, at); readErr == nil {
		if bytes.Contains(got, []byte(rootsWords)) || bytes.Contains(got, []byte(victimsWords)) {
			return failure, fmt.Errorf("a stage-in of %s gave away %q", url, got[:min(len(got), 64)])
		}
	}
	if err := b.RemoveAll(ctx, at); err != nil && !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrUnknownOutcome) {
		return failure, err
	}
	return failure, nil
}

// refused stages URLs in, none of which may be.
func (a *attacker) refused(urls ...string) error {
	for _, url := range urls {
		failure, err := a.stageIn(url)
		if err == nil && failure == nil {
			err = fmt.Errorf("%s was staged in", url)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const someObject = "s3://bucket/x?endpoint=https://127.0.0.1:1"

func (a *attacker) fifos() error {
	pipe := filepath.Join(a.Dir, "pipe.zst")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return a.refused(someObject+"&ca="+a.fifo, someObject+"&credentials="+a.fifo, fileURL(a.fifo), fileURL(pipe))
}

// namedFiles names files for the daemon to read that are too large, are endless, or are root's. The
// error for these does not show whether they are there.
func (a *attacker) namedFiles() error {
	large := filepath.Join(a.Dir, "large.pem")
	f, err := os.Create(large)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(1500<<20), f.Close()); err != nil {
		return err
	}
	if err := a.refused(someObject+"&ca="+large, someObject+"&ca=/dev/zero", someObject+"&credentials=/dev/zero"); err != nil {
		return err
	}
	own := filepath.Join(a.Dir, "credentials")
	if err := os.WriteFile(own, []byte("[default]\naws_access_key_id = MINE\naws_secret_access_key = MINE\n"), 0o600); err != nil {
		return err
	}
	for _, query := range []string{"&ca=", "&credentials=", "&credentials=" + own + "&ca="} {
		if err := a.saysNothing(query); err != nil {
			return err
		}
	}
	return nil
}

// saysNothing compares the errors for a file of root's that is there, and for one that is not.
func (a *attacker) saysNothing(query string) error {
	var said []string
	for _, name := range []string{"there", "absent"} {
		path := filepath.Join(a.Roots, "closed", name)
		failure, err := a.stageIn(someObject + query + path)
		if err == nil && failure == nil {
			err = fmt.Errorf("%s was staged in with %s", someObject, path)
		}
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(failure.Error(), path, "")
		said = append(said, text[strings.Index(text, someObject):]) // after the name in the buffer
	}
	if said[0] != said[1] {
		return fmt.Errorf("of a file that is there is said %q, of one that is not %q", said[0], said[1])
	}
	return nil
}

// endpoint names a server of the attacker's to the daemon, which must get no request.
func (a *attacker) endpoint() error {
	var heard atomic.Pointer[http.Request]
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { heard.Store(r) }))
	defer server.Close()
	url := "s3://bucket/x?path_style=true&endpoint=" + server.URL
	if err := a.refused(url, url+"&profile=other", url+"&ca=/etc/shadow"); err != nil {
		return err
	}
	if r := heard.Load(); r != nil {
		return fmt.Errorf("the daemon has asked a server of the attacker's: %s %s %v", r.Method, r.URL, r.Header)
	}
	return nil
}

// backed makes a buffer with a store.
func (a *attacker) backed(spec admin.BufferSpec) (b *client.Buffer, end func() error, err error) {
	ctx, cancel := a.within()
	defer cancel()
	spec.Name = a.name("backed")
	if _, err := admin.CreateBuffer(ctx, a.c, spec); err != nil {
		return nil, nil, err
	}
	end = func() error {
		ctx, cancel := a.within()
		defer cancel()
		return admin.DiscardBuffer(ctx, a.c, spec.Name)
	}
	return a.c.Buffer(spec.Name), end, nil
}

// put writes a file of the attacker's. A daemon without memory for it makes the attack void.
func (a *attacker) put(ctx context.Context, b *client.Buffer, name string) error {
	err := b.WriteFile(ctx, name, []byte("the attacker's"), 0o644)
	if errors.Is(err, client.ErrNoSpace) || errors.Is(err, client.ErrBusy) {
		return errVoid
	}
	return err
}

// notDrained drains a buffer whose files cannot all be flushed.
func (a *attacker) notDrained(ctx context.Context, b *client.Buffer) error {
	if _, err := admin.Drain(ctx, a.c, b.Name(), briefly, nil); err == nil {
		return fmt.Errorf("%s was drained", b.Name())
	}
	return nil
}

// pipes lie where files and directories of a buffer would go.
func (a *attacker) pipes() (err error) {
	store := filepath.Join(a.Dir, a.name("pipes"))
	if err := os.Mkdir(store, 0o700); err != nil {
		return err
	}
	b, end, err := a.backed(admin.BufferSpec{Backing: fileURL(store), Codec: "zstd", Existing: admin.ExistingOverwrite})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	ctx, cancel := a.within()
	defer cancel()
	for i := range 20 {
		dir := fmt.Sprint("d", i)
		if err := b.MkdirAll(ctx, dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mkfifo(filepath.Join(store, dir), 0o600); err != nil {
			return err
		}
		if err := a.put(ctx, b, dir+"/f"); err != nil {
			return err
		}
	}
	if err := a.notDrained(ctx, b); err != nil {
		return err
	}
	_, err = admin.StageOut(ctx, a.c, admin.StageRequest{Buffer: b.Name(), URL: fileURL(store)}, nil)
	if waited(ctx, err) {
		return fmt.Errorf("a stage-out to where pipes lie waited for who writes into them, or went on: %v", err)
	}
	return errors.Join(a.pipeOfCodec(b, store), a.awaitVictim())
}

// waited reports whether a request that has to fail went on, or was cancelled.
func waited(ctx context.Context, err error) bool {
	return err == nil || ctx.Err() != nil || errors.Is(err, client.ErrUnavailable)
}

// pipeOfCodec stages in a pipe that has the suffix of the buffer's codec, so that it would be read to its end.
func (a *attacker) pipeOfCodec(b *client.Buffer, store string) error {
	pipe := filepath.Join(store, "p.zst")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		return err
	}
	ctx, cancel := a.within()
	defer cancel()
	_, err := admin.StageIn(ctx, a.c, admin.StageRequest{Buffer: b.Name(), Path: "in", URL: fileURL(pipe)}, nil)
	if waited(ctx, err) {
		return fmt.Errorf("a stage-in of a pipe waited for who writes into it, or went on: %v", err)
	}
	return nil
}

// replacedStore has a link to root's directory in place of the store.
func (a *attacker) replacedStore() (err error) {
	store := filepath.Join(a.Dir, a.name("store"))
	if err := os.Mkdir(store, 0o755); err != nil {
		return err
	}
	b, end, err := a.backed(admin.BufferSpec{Backing: fileURL(store), Existing: admin.ExistingOverwrite})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	ctx, cancel := a.within()
	defer cancel()
	if err := a.put(ctx, b, "ok"); err != nil {
		return err
	}
	if _, err := admin.Drain(ctx, a.c, b.Name(), 0, nil); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(store, store+".old"), os.Symlink(a.Roots, store)); err != nil {
		return err
	}
	if err := b.MkdirAll(ctx, "closed", 0o755); err != nil {
		return err
	}
	for _, name := range []string{"planted", "existing", "closed/there"} {
		if err := a.put(ctx, b, name); err != nil {
			return err
		}
	}
	if a.Restarts && a.rnd.IntN(2) == 0 {
		if err := a.restart(); err != nil {
			return err
		}
	}
	return a.notDrained(ctx, b)
}

// othersDirectories has a buffer, and stages out, where others have directories. It needs no link
// and no race.
func (a *attacker) othersDirectories() (err error) {
	b, end, err := a.backed(admin.BufferSpec{Backing: fileURL(a.Scratch), Existing: admin.ExistingOverwrite})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	ctx, cancel := a.within()
	defer cancel()
	for _, name := range []string{"private/data", "private/new", "open/data", "open/new"} {
		if err := b.MkdirAll(ctx, filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := a.put(ctx, b, name); err != nil {
			return err
		}
	}
	if err := a.notDrained(ctx, b); err != nil {
		return err
	}
	if _, err := admin.StageOut(ctx, a.c, admin.StageRequest{Buffer: b.Name(), URL: fileURL(a.Scratch)}, nil); err == nil {
		return errors.New("files were staged out into directories of others")
	}
	for _, dir := range []string{"private", "open"} {
		if err := b.RemoveAll(ctx, dir); err != nil {
			return err
		}
	}
	_, _ = admin.Drain(ctx, a.c, b.Name(), briefly, nil)
	for _, path := range []string{"private/data", "open/data"} {
		if err := a.refused(fileURL(filepath.Join(a.Scratch, path))); err != nil {
			return err
		}
	}
	if _, err := admin.CreateBuffer(ctx, a.c, admin.BufferSpec{Name: a.name("closed"), Backing: fileURL(filepath.Join(a.Scratch, "private"))}); err == nil {
		return errors.New("a buffer was made on a directory that the attacker may not enter")
	}
	return nil
}
