package clustertls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"forebay/internal/bb"
)

// talk returns each end's error for a connection.
func talk(t *testing.T, server, client *tls.Config) (atServer, atClient error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		a, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		s := tls.Server(a, server)
		_, err = s.Write([]byte("hello"))
		s.Close()
		done <- err
	}()
	b, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := io.ReadAll(tls.Client(b, client))
	if err == nil && string(got) != "hello" {
		err = errors.New("nothing was said")
	}
	b.Close()
	return <-done, err
}

func TestMembersTalk(t *testing.T) {
	key, other := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	config := func(key []byte) *tls.Config {
		c, err := New(key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if s, c := talk(t, config(key), config(key)); s != nil || c != nil {
		t.Errorf("two members: %v, %v", s, c)
	}
	if s, c := talk(t, config(key), config(other)); s == nil || c == nil {
		t.Errorf("a server and a client with another key: %v, %v", s, c)
	}
	// Keys are replaced under a configuration that is in use. The file has both for a while.
	keys := [][]byte{key}
	server, err := Following(func() [][]byte { return keys })
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		keys     [][]byte
		old, new bool
	}{{keys, true, false}, {[][]byte{key, other}, true, false}, {[][]byte{other, key}, false, true}, {[][]byte{other}, false, true}} {
		keys = step.keys
		accepts := func(own ...[]byte) bool {
			c, err := Following(func() [][]byte { return own })
			if err != nil {
				t.Fatal(err)
			}
			atServer, atClient := talk(t, server, c)
			return atServer == nil && atClient == nil
		}
		if accepts(key) != step.old || accepts(other) != step.new {
			t.Errorf("with %d keys: %v, %v", len(keys), accepts(key), accepts(other))
		}
		if len(keys) == 2 && (!accepts(key, other) || !accepts(other, key)) {
			t.Error("members at different steps do not get on")
		}
	}
	nobody := config(key)
	nobody.GetClientCertificate = nil
	if s, _ := talk(t, config(key), nobody); s == nil {
		t.Error("a client without a certificate was let in")
	}
	if _, err := New(key[:8]); bb.KindOf(err) != bb.Invalid {
		t.Errorf("a short key: %v", err)
	}
}
