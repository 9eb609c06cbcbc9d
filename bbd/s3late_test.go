package bbd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client/admin"
)

// lateRequest loses the connection of the first PUT of an object, after it has left, and
// stands before a store that implements no conditions.
type lateRequest struct {
	object string

	mu   sync.Mutex
	lost *http.Request
}

func (l *lateRequest) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "" {
		io.Copy(io.Discard, r.Body)
		const text = `<Error><Code>NotImplemented</Code></Error>`
		return &http.Response{
			StatusCode: http.StatusNotImplemented, Header: http.Header{"Content-Type": {"application/xml"}},
			Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
		}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil || r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, l.object) {
		return http.DefaultTransport.RoundTrip(r)
	}
	p, _ := io.ReadAll(r.Body)
	l.lost = r.Clone(context.Background())
	l.lost.Body = io.NopCloser(bytes.NewReader(p))
	return nil, errors.New("read: connection reset by peer")
}

// A PUT whose connection broke arrives after a newer content was confirmed, at a store that
// cannot refuse it. The newer content is put again.
func TestS3LateRequestIsUndone(t *testing.T) {
	late := &lateRequest{object: "/f"}
	n, server, bucket := s3Node(t, func(cfg *bbd.Config) { cfg.Backing.S3.Transport = late })
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "s3", Backing: server.URL(bucket, "p")})
	for _, content := range []string{"older", "newer"} {
		if err := b.WriteFile(t.Context(), "f", []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Drain(t.Context(), c, "s3", time.Minute, nil); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(late.lost)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	file := server.File(bucket, "p/f")
	if p, err := os.ReadFile(file); err != nil || string(p) == "newer" {
		t.Fatalf("the late request has changed nothing: %q, %v (answered %s)", p, err, answer.Status)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		p, err := os.ReadFile(file)
		if err == nil && string(p) == "newer" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the store still has %q, %v", p, err)
		}
	}
}
