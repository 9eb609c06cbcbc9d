package s3

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/s3test"
)

// putAndGet shows that a store can be used.
func putAndGet(t *testing.T, s *Store) error {
	t.Helper()
	content := []byte("what goes in comes out")
	if _, err := s.Put(t.Context(), "a/b", backing.NewBytes(content), backing.PutOptions{}); err != nil {
		return err
	}
	body, err := s.Get(t.Context(), "a/b", 0, -1)
	if err != nil {
		return err
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %q (%v)", got, err)
	}
	return nil
}

// If the URL names the authority's file, and only then, a store behind TLS with a certificate of a
// site's own authority is accepted.
func TestCustomCA(t *testing.T) {
	server := start(t)
	bucket := server.Bucket(t, "secure")
	inner, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	behind := new(http.Transport)
	defer behind.CloseIdleConnections()
	front := httptest.NewTLSServer(&httputil.ReverseProxy{Transport: behind, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(inner)
		r.Out.Host = r.In.Host // which is signed
	}})
	defer front.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	query := url.Values{"endpoint": {front.URL}, "region": {server.Region}, "path_style": {"true"}}
	plain := "s3://" + bucket + "/?" + query.Encode()
	if err := putAndGet(t, open(t, plain, options())); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without its authority: %v", err)
	}
	query.Set("ca", file)
	if err := putAndGet(t, open(t, "s3://"+bucket+"/?"+query.Encode(), options())); err != nil {
		t.Errorf("with its authority: %v", err)
	}
}

// Unless the URL overrides it, the bucket is part of the host's name, as AWS has it.
func TestVirtualHost(t *testing.T) {
	const domain = "s3.forebay.test"
	server := s3test.Start(t, "--virtual-domain", domain)
	bucket := server.Bucket(t, "hosted")
	inner, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var hosts atomic.Pointer[string]
	o := options()
	o.AccessKey, o.SecretKey = server.AccessKey, server.SecretKey
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			hosts.Store(&address)
			return new(net.Dialer).DialContext(ctx, network, inner.Host)
		},
	}
	defer transport.CloseIdleConnections()
	o.Transport = transport
	query := url.Values{"endpoint": {"http://" + domain}, "region": {server.Region}}
	if err := putAndGet(t, open(t, "s3://"+bucket+"/x?"+query.Encode(), o)); err != nil {
		t.Fatal(err)
	}
	if host := hosts.Load(); host == nil || *host != bucket+"."+domain+":80" {
		t.Errorf("connected to %v", host)
	}
	if _, err := os.Stat(server.File(bucket, "x/a/b")); err != nil {
		t.Error(err)
	}
}

// Where there are no other credentials, those of the role are requested, from the address that the
// container's environment names.
func TestRole(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t, "role")
	var asked atomic.Int64
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "a token" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{
			"Code": "Success", "AccessKeyId": server.AccessKey, "SecretAccessKey": server.SecretKey,
			"Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		})
	}))
	defer metadata.Close()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "MINIO_ROOT_USER", "MINIO_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.URL+"/creds")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a token")
	if err := putAndGet(t, open(t, server.URL(bucket, ""), options())); err != nil {
		t.Fatal(err)
	}
	if asked.Load() == 0 {
		t.Error("nobody asked for the role's credentials")
	}
}
