package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/internal/bb"
)

// disturbance is the fate of one request.
type disturbance struct {
	name string
	kind bb.Kind // of the operation's error
	do   func(r *http.Request) (*http.Response, error)
}

func reset(op string, errno syscall.Errno) error { return &net.OpError{Op: op, Net: "tcp", Err: errno} }

func answers(status int, code string) func(r *http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			io.Copy(io.Discard, r.Body)
		}
		body := fmt.Sprintf(`<?xml version="1.0"?><Error><Code>%s</Code><Message>injected</Message></Error>`, code)
		return &http.Response{
			StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{"Content-Type": {"application/xml"}},
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
}

var disturbances = []disturbance{
	{"connection refused", bb.Unavailable, func(*http.Request) (*http.Response, error) {
		return nil, reset("dial", syscall.ECONNREFUSED)
	}},
	{"reset, carried out", bb.Unavailable, func(r *http.Request) (*http.Response, error) {
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			err = reset("read", syscall.ECONNRESET)
		}
		return nil, err
	}},
	{"reset in the body", bb.Unavailable, func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		}
		return nil, reset("write", syscall.ECONNRESET)
	}},
	{"500", bb.Unavailable, answers(http.StatusInternalServerError, "InternalError")},
	{"503", bb.Unavailable, answers(http.StatusServiceUnavailable, "SlowDown")},
	{"507", bb.NoSpace, answers(http.StatusInsufficientStorage, "InsufficientStorage")},
	{"403", bb.Permission, answers(http.StatusForbidden, "AccessDenied")},
	{"truncated answer", bb.Unavailable, func(r *http.Request) (*http.Response, error) {
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err == nil && r.Method != http.MethodHead {
			p, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(p[:len(p)/2]), cutOff{}))
		}
		return answer, err
	}},
	{"hang", bb.Cancelled, nil},
}

// cutOff is the end of an answer that is shorter than announced.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// disturbed disturbs the nth request, and counts all.
type disturbed struct {
	mu      sync.Mutex
	on      bool
	nth     int
	with    *disturbance
	count   int
	reached string
	cancel  func()
}

func (d *disturbed) begin(nth int, with *disturbance, cancel func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on, d.nth, d.with, d.count, d.reached, d.cancel = true, nth, with, 0, "", cancel
}

func (d *disturbed) end() (count int, reached string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = false
	return d.count, d.reached
}

func (d *disturbed) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	hit := d.on && d.with != nil && d.count == d.nth
	if d.on {
		d.count++
	}
	if !hit {
		d.mu.Unlock()
		return http.DefaultTransport.RoundTrip(r)
	}
	d.reached = r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
	with, cancel := d.with, d.cancel
	d.mu.Unlock()
	if with.do != nil {
		return with.do(r)
	}
	cancel()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

type s3Fault struct {
	name          string
	before, after map[string][]byte
	do            func(ctx context.Context, s *Store) error
}

func s3Faults() []s3Fault {
	small, other, big := backingtest.Data(3000, 1), backingtest.Data(2000, 2), backingtest.Data(minPart+17, 3)
	type m = map[string][]byte
	put := func(p []byte) func(ctx context.Context, s *Store) error {
		return func(ctx context.Context, s *Store) error {
			_, err := s.Put(ctx, "f", backing.NewBytes(p), backing.PutOptions{})
			return err
		}
	}
	return []s3Fault{
		{"put", m{}, m{"f": small}, put(small)},
		{"put over an object", m{"f": other}, m{"f": small}, put(small)},
		{"put in parts over an object", m{"f": other}, m{"f": big}, put(big)},
		{"rename", m{"f": small}, m{"g": small}, func(ctx context.Context, s *Store) error { return s.Rename(ctx, "f", "g") }},
		{"rename a version", m{"f": small}, m{"g": small}, renameVersion},
		{"rename a version over an object", m{"f": small, "g": other}, m{"g": small}, renameVersion},
		{"remove a version", m{"f": small}, m{}, func(ctx context.Context, s *Store) error {
			is, err := s.versionAt(ctx, "f")
			if err != nil {
				return err
			}
			return s.RemoveIf(ctx, "f", is)
		}},
		{"remove", m{"f": small}, m{}, func(ctx context.Context, s *Store) error { return s.Remove(ctx, "f") }},
		{"list", m{"f": small}, m{"f": small}, func(ctx context.Context, s *Store) error {
			n := 0
			err := s.List(ctx, "", func(backing.Object) error { n++; return nil })
			if err == nil && n != 1 {
				return fmt.Errorf("it lists %d objects", n)
			}
			return err
		}},
		{"get", m{"f": small}, m{"f": small}, func(ctx context.Context, s *Store) error {
			r, err := s.Get(ctx, "f", 0, -1)
			if err != nil {
				return err
			}
			defer r.Close()
			p, err := io.ReadAll(r)
			if err == nil && !bytes.Equal(p, small) {
				return fmt.Errorf("it reads %d bytes that are not the object's", len(p))
			}
			return err
		}},
	}
}

// renameVersion moves f to g.
func renameVersion(ctx context.Context, s *Store) error {
	is, err := s.versionAt(ctx, "f")
	if err != nil {
		return err
	}
	replaces, err := s.versionAt(ctx, "g")
	if err != nil {
		return err
	}
	return s.RenameIf(ctx, "f", "g", is, replaces)
}

// contents reads the names that an operation is about.
func contents(t *testing.T, s *Store) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, name := range []string{"f", "g"} {
		r, err := s.Get(t.Context(), name, 0, -1)
		if errors.Is(err, bb.NotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		if r.Close(); err != nil {
			t.Fatal(err)
		}
		found[name] = p
	}
	return found
}

// TestFaults disturbs each request of each operation once in each way.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of requests, one after the other")
	}
	server := start(t)
	bucket := server.Bucket(t, "faults")
	number := 0
	for _, op := range s3Faults() {
		t.Run(op.name, func(t *testing.T) {
			requests := faultOnce(t, server.URL(bucket, fmt.Sprint(number)), op, 0, nil)
			for nth := range requests {
				for i := range disturbances {
					number++
					faultOnce(t, server.URL(bucket, fmt.Sprint(number)), op, nth, &disturbances[i])
				}
			}
		})
		number++
	}
	if number < 150 {
		t.Errorf("there were %d cases: the test does not test", number)
	}
}

func faultOnce(t *testing.T, url string, op s3Fault, nth int, with *disturbance) int {
	t.Helper()
	d := &disturbed{}
	opts := options()
	opts.Transport, opts.Parallel = d, 1
	s := open(t, url, opts)
	defer s.Close()
	for name, p := range op.before {
		if _, err := s.Put(t.Context(), name, backing.NewBytes(p), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasPrefix(op.name, "rename a version") { // the store is tried out in the removal
		_, err := s.removals.known(t.Context(), s, s.tryRemovals)
		if _, err2 := s.copies.known(t.Context(), s, s.tryCopies); errors.Join(err, err2) != nil {
			t.Fatal(err, err2)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.begin(nth, with, cancel)
	err := op.do(ctx, s)
	count, reached := d.end()
	what := "undisturbed"
	if with != nil {
		what = with.name + " at " + reached
		if reached == "" {
			t.Errorf("%s of request %d: it did not come", with.name, nth)
		}
		if err != nil && bb.KindOf(err) != with.kind && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v, of kind %v, want %v", what, err, bb.KindOf(err), with.kind)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	judgeS3(t, what, op, contents(t, s), err == nil)
	if with == nil {
		return count
	}
	if again := op.do(t.Context(), s); again != nil && !(strings.HasPrefix(op.name, "rename") && errors.Is(again, bb.NotFound)) {
		t.Errorf("%s: again: %v", what, again)
	}
	judgeS3(t, what+", again", op, contents(t, s), true)
	return count
}

// judgeS3 compares the objects with the possible ones.
func judgeS3(t *testing.T, what string, op s3Fault, found map[string][]byte, done bool) {
	t.Helper()
	is := func(p, want []byte) bool { return bytes.Equal(p, want) && (p == nil) == (want == nil) }
	for _, name := range []string{"f", "g"} {
		if p := found[name]; !is(p, op.after[name]) && (done || !is(p, op.before[name])) {
			t.Errorf("%s: %s has %d bytes that are neither the old nor the new content (it succeeded: %v)", what, name, len(p), done)
		}
	}
	if op.name == "rename" && found["f"] == nil && found["g"] == nil {
		t.Errorf("%s: neither name has the content", what)
	}
}
