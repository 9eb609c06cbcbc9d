package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/s3/uncertain"
	"forebay/internal/bb"
)

// delayed loses the connection of one request after it has left, and delivers it later, as a
// proxy or a gateway before a store may.
type delayed struct {
	method, path, query string // of the request: the end of its path, and a part of its query
	arrives             bool   // it is carried out at once; the answer is lost
	change              func(*http.Request) *http.Response

	mu   sync.Mutex
	lost *http.Request
}

func (d *delayed) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.change != nil {
		if answer := d.change(r); answer != nil {
			return answer, nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil || r.Method != d.method || !strings.HasSuffix(r.URL.Path, d.path) || !strings.Contains(r.URL.RawQuery, d.query) {
		return http.DefaultTransport.RoundTrip(r)
	}
	var p []byte
	if r.Body != nil {
		p, _ = io.ReadAll(r.Body)
	}
	d.lost = r.Clone(context.Background())
	d.lost.Body = io.NopCloser(bytes.NewReader(p))
	if d.arrives {
		if _, err := d.arrive(); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("read: connection reset by peer")
}

// arrive delivers the request, and returns how it was answered.
func (d *delayed) arrive() (status int, err error) {
	answer, err := http.DefaultTransport.RoundTrip(d.lost)
	if err != nil {
		return 0, err
	}
	io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Body.Close()
}

// lateStore returns a store that loses one request, and checks after that soon. Changed gets the
// reported changes.
func lateStore(t *testing.T, d *delayed) (s *Store, changed chan string) {
	t.Helper()
	server := start(t)
	changed = make(chan string, 100)
	opts := options()
	opts.Transport, opts.requestLife, opts.watch = d, time.Minute, [2]time.Duration{10 * time.Millisecond, 50 * time.Millisecond}
	opts.Changed = func(name string) {
		select {
		case changed <- name:
		default:
		}
	}
	return open(t, server.URL(server.Bucket(t, "late"), "p"), opts), changed
}

func mustPut(t *testing.T, s *Store, content []byte) backing.Object {
	t.Helper()
	o, err := s.Put(t.Context(), "f", backing.NewBytes(content), backing.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func lose(t *testing.T, s *Store, content []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), "f", backing.NewBytes(content), backing.PutOptions{}); !errors.Is(err, bb.Unavailable) {
		t.Fatalf("a put whose connection breaks: %v", err)
	}
}

func expectContent(t *testing.T, s *Store, want []byte) {
	t.Helper()
	r, err := s.Get(t.Context(), "f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the store has %d bytes that are not the newer content: %v", len(got), err)
	}
}

// TestLatePutIsRefused delivers an older PUT after a newer one was confirmed.
func TestLatePutIsRefused(t *testing.T) {
	for _, replaces := range []bool{false, true} {
		d := &delayed{method: http.MethodPut, path: "/f"}
		s, _ := lateStore(t, d)
		if replaces {
			d.lost = &http.Request{}
			mustPut(t, s, backingtest.Data(100, 3))
			d.lost = nil
		}
		lose(t, s, backingtest.Data(100, 1))
		newer := backingtest.Data(100, 2)
		mustPut(t, s, newer)
		if status, err := d.arrive(); err != nil || status != http.StatusPreconditionFailed {
			t.Errorf("replaces=%v: the late put is answered %d, %v", replaces, status, err)
		}
		expectContent(t, s, newer)
	}
}

// TestLatePutOfRemovedName has a PUT arrive after its object was removed.
func TestLatePutOfRemovedName(t *testing.T) {
	for _, tree := range []bool{false, true} {
		d := &delayed{method: http.MethodPut, path: "/f"}
		s, _ := lateStore(t, d)
		lose(t, s, backingtest.Data(100, 1))
		remove := func() error { return s.Remove(t.Context(), "f") }
		if tree {
			remove = func() error { return s.RemoveTree(t.Context(), "") }
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if status, err := d.arrive(); err != nil || status != http.StatusOK {
			t.Fatalf("the late put is answered %d, %v: no store can refuse it", status, err)
		}
		until := time.Now().Add(20 * time.Second)
		for {
			_, err := s.Stat(t.Context(), "f")
			if errors.Is(err, bb.NotFound) {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("tree=%v: the object that came back stays: %v", tree, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestOthersObjectStays puts another client's object under a watched name.
func TestOthersObjectStays(t *testing.T) {
	d := &delayed{method: http.MethodPut, path: "/f"}
	s, _ := lateStore(t, d)
	lose(t, s, backingtest.Data(100, 1))
	if err := s.Remove(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	others := backingtest.Data(100, 4)
	if err := s.putOwn(t.Context(), s.key("f"), others); err != nil {
		t.Fatal(err)
	}
	one := uncertain.Name{Gone: true, Puts: []uncertain.Content{{Size: 100, Sum: backing.NewBytes(backingtest.Data(100, 1)).Checksum()}}}
	if err := s.lookAt(t.Context(), "f", &one); err != nil {
		t.Fatal(err)
	}
	expectContent(t, s, others)
}

// withoutConditions answers as a store that does not implement conditions.
func withoutConditions(r *http.Request) *http.Response {
	if r.Header.Get("If-Match") == "" && r.Header.Get("If-None-Match") == "" {
		return nil
	}
	io.Copy(io.Discard, r.Body)
	const text = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>NotImplemented</Code><Message>no</Message></Error>`
	return &http.Response{
		StatusCode: http.StatusNotImplemented, Header: http.Header{"Content-Type": {"application/xml"}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}
}

// ignorant answers as a store that ignores conditions: every PUT succeeds.
func ignorant(r *http.Request) *http.Response {
	if r.Method != http.MethodPut {
		return nil
	}
	io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"1"`}}, Body: http.NoBody, Request: r}
}

// TestStoreThatComparesNothing detects a newer object that a late PUT has overwritten.
func TestStoreThatComparesNothing(t *testing.T) {
	d := &delayed{method: http.MethodPut, path: "/f", change: withoutConditions}
	s, changed := lateStore(t, d)
	lose(t, s, backingtest.Data(100, 1))
	newer := backingtest.Data(100, 2)
	mustPut(t, s, newer)
	if status, err := d.arrive(); err != nil || status != http.StatusOK {
		t.Fatalf("the late put is answered %d, %v", status, err)
	}
	select {
	case name := <-changed:
		if name != "f" {
			t.Errorf("%q has changed", name)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody notices that the newer object was overwritten")
	}
	mustPut(t, s, newer) // as the flusher does then
	expectContent(t, s, newer)
}

// TestLateDelete detects a newer object that a late DELETE has removed.
func TestLateDelete(t *testing.T) {
	d := &delayed{method: http.MethodDelete, path: "/f"}
	s, changed := lateStore(t, d)
	mustPut(t, s, backingtest.Data(100, 1))
	if err := s.Remove(t.Context(), "f"); !errors.Is(err, bb.Unavailable) {
		t.Fatalf("a removal whose connection breaks: %v", err)
	}
	mustPut(t, s, backingtest.Data(100, 2))
	if status, err := d.arrive(); err != nil || status != http.StatusNoContent {
		t.Fatalf("the late delete is answered %d, %v", status, err)
	}
	select {
	case name := <-changed:
		if name != "f" {
			t.Errorf("%q has changed", name)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody notices that the newer object was removed")
	}
}

// TestLateCompletion delivers the completion of an upload in parts after a newer object was
// confirmed, and after the object was removed.
func TestLateCompletion(t *testing.T) {
	for _, remove := range []bool{false, true} {
		d := &delayed{method: http.MethodPost, path: "/f", query: "uploadId="}
		s, _ := lateStore(t, d)
		lose(t, s, backingtest.Data(large, 1))
		newer := backingtest.Data(100, 2)
		mustPut(t, s, newer)
		if remove {
			if err := s.Remove(t.Context(), "f"); err != nil {
				t.Fatal(err)
			}
		}
		// Its answer proves nothing. A store may take it for one that was carried out before.
		if _, err := d.arrive(); err != nil {
			t.Fatal(err)
		}
		if remove {
			if _, err := s.Stat(t.Context(), "f"); !errors.Is(err, bb.NotFound) {
				t.Errorf("a removed object is back: %v", err)
			}
		} else {
			expectContent(t, s, newer)
		}
	}
}

// TestUploadThatCannotBeAborted keeps its name from being used until it is aborted.
func TestUploadThatCannotBeAborted(t *testing.T) {
	var mu sync.Mutex
	down := true
	d := &delayed{method: http.MethodPost, path: "/f", query: "uploadId="}
	d.change = func(r *http.Request) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodDelete || !down || !strings.Contains(r.URL.RawQuery, "uploadId=") {
			return nil
		}
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}
	}
	s, _ := lateStore(t, d)
	lose(t, s, backingtest.Data(large, 1))
	if _, err := s.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{}); !errors.Is(err, bb.Unavailable) {
		t.Errorf("a put before an older upload is aborted: %v", err)
	}
	if err := s.Remove(t.Context(), "f"); !errors.Is(err, bb.Unavailable) {
		t.Errorf("a removal before an older upload is aborted: %v", err)
	}
	mu.Lock()
	down = false
	mu.Unlock()
	newer := backingtest.Data(100, 2)
	mustPut(t, s, newer)
	if _, err := d.arrive(); err != nil {
		t.Fatal(err)
	}
	expectContent(t, s, newer)
}

// TestPutAgainAfterALostAnswer puts an object that is there already, without an answer.
func TestPutAgainAfterALostAnswer(t *testing.T) {
	d := &delayed{method: http.MethodPut, path: "/f", arrives: true}
	s, _ := lateStore(t, d)
	content := backingtest.Data(100, 1)
	lose(t, s, content)
	there, err := s.Stat(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	if o := mustPut(t, s, content); o.ETag != there.ETag {
		t.Errorf("it is %q, was %q", o.ETag, there.ETag)
	}
	expectContent(t, s, content)
}

// TestPutReplacesWhateverIsThere puts with every wrong expectation of the present object.
func TestPutReplacesWhateverIsThere(t *testing.T) {
	s, _ := lateStore(t, &delayed{})
	for i, replaces := range []string{"", "0123456789abcdef0123456789abcdef"} {
		for _, there := range []bool{false, true} {
			if err := s.Remove(t.Context(), "f"); err != nil {
				t.Fatal(err)
			}
			if there {
				mustPut(t, s, backingtest.Data(50, 9))
			}
			content := backingtest.Data(100, uint64(i))
			if _, err := s.Put(t.Context(), "f", backing.NewBytes(content), backing.PutOptions{Replaces: replaces}); err != nil {
				t.Fatalf("replaces=%q there=%v: %v", replaces, there, err)
			}
			expectContent(t, s, content)
		}
	}
}

func TestConditionsAreTriedOut(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*http.Request) *http.Response
		want   bool
	}{"compares": {nil, true}, "not implemented": {withoutConditions, false}, "ignores": {ignorant, false}} {
		s, _ := lateStore(t, &delayed{change: x.change})
		if got, err := s.comparesConditions(t.Context()); err != nil || got != x.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if err := s.list(t.Context(), "list", "", func(o minio.ObjectInfo) error { t.Errorf("%s: %s stays", name, o.Key); return nil }); err != nil {
			t.Error(err)
		}
	}
}
