package bbd_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// tokenNode is a node with the buffers "mine" and "other", and a token for mine.
func tokenNode(t *testing.T) (n *node, address, token string) {
	t.Helper()
	address = freeAddress(t)
	n = startNode(t, func(c *bbd.Config) { c.TCP, c.Fabric, c.Keys = address, "127.0.0.1:0", wire.NewKeyring(fabricKey) })
	c := n.dial()
	for _, name := range []string{"mine", "other"} {
		n.buffer(c, admin.BufferSpec{Name: name, Mode: 0o777})
	}
	token, _, err := admin.Token(t.Context(), c, "mine", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return n, address, token
}

func withToken(t *testing.T, address, token string) (*client.Client, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + address, TokenFile: file, RetryFor: -1})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func TestToken(t *testing.T) {
	t.Parallel()
	n, address, token := tokenNode(t)
	write(t, n.dial().Buffer("other"), "f", []byte("secret"))
	c, err := withToken(t, address, token)
	if err != nil {
		t.Fatal(err)
	}
	content := random(3<<20 + 1)
	write(t, c.Buffer("mine"), "f", content)
	wantFile(t, c.Buffer("mine"), "f", content)
	wantFile(t, n.dial().Buffer("mine"), "f", content)
	buffers, err := admin.Buffers(t.Context(), c)
	if err != nil || len(buffers) != 1 || buffers[0].Name != "mine" {
		t.Errorf("it sees %v, %v", buffers, err)
	}
	ctx := t.Context()
	for what, try := range map[string]func() error{
		"read":    func() error { _, err := c.Buffer("other").ReadFile(ctx, "f"); return err },
		"write":   func() error { return c.Buffer("other").WriteFile(ctx, "g", []byte("x"), 0o644) },
		"rename":  func() error { return c.Buffer("other").Rename(ctx, "f", "g") },
		"info":    func() error { _, err := admin.BufferInfo(ctx, c, "other"); return err },
		"absent":  func() error { _, err := admin.BufferInfo(ctx, c, "nothing"); return err },
		"status":  func() error { _, err := admin.Status(ctx, c, ""); return err },
		"create":  func() error { _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "new"}); return err },
		"destroy": func() error { return admin.DiscardBuffer(ctx, c, "mine") },
		"nodes":   func() error { _, err := admin.Nodes(ctx, c); return err },
		"forget":  func() error { _, err := admin.ForgetNode(ctx, c, "n2"); return err },
		"token":   func() error { _, _, err := admin.Token(ctx, c, "mine", time.Hour); return err },
	} {
		if err := try(); client.KindOf(err) != client.ErrPermission {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The token is not valid for another buffer of the same name.
	own := n.dial()
	if err := admin.DiscardBuffer(ctx, own, "mine"); err != nil {
		t.Fatal(err)
	}
	n.buffer(own, admin.BufferSpec{Name: "mine", Mode: 0o777})
	if _, err := admin.BufferInfo(ctx, c, "mine"); client.KindOf(err) != client.ErrPermission {
		t.Errorf("a buffer that was made later: %v", err)
	}
}

// TestTokenIsNeeded: forged, foreign and expired tokens open nothing.
func TestTokenIsNeeded(t *testing.T) {
	t.Parallel()
	_, address, token := tokenNode(t)
	public, secret, err := wire.ParseToken([]byte(token))
	if err != nil {
		t.Fatal(err)
	}
	claims, err := wire.ReadTokenClaims(public)
	if err != nil {
		t.Fatal(err)
	}
	mint := func(key []byte, change func(*wire.TokenClaims)) string {
		c := *claims
		change(&c)
		token, err := wire.NewToken(key, &c)
		if err != nil {
			t.Fatal(err)
		}
		return wire.TokenText(token)
	}
	same := func(*wire.TokenClaims) {}
	changed := append([]byte(nil), public...)
	changed[1]++ // of another user
	for name, bad := range map[string]string{
		"another user":       wire.TokenText(append(changed, secret...)),
		"of another cluster": mint([]byte("ffffffffffffffffffffffffffffffff"), same),
		"expired":            mint(fabricKey, func(c *wire.TokenClaims) { c.Expires = time.Now().Add(-time.Second) }),
		"another secret":     wire.TokenText(append(append([]byte(nil), public...), make([]byte, len(secret))...)),
	} {
		if _, err := withToken(t, address, bad); client.KindOf(err) != client.ErrPermission {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := withToken(t, address, "nonsense"); client.KindOf(err) != client.ErrInvalid {
		t.Errorf("nonsense: %v", err)
	}
	// The client's claims do not count, since it is the token's user, and no daemon.
	conn := dialTCP(t, address)
	hello := &wire.Hello{Client: "test", Uid: claims.UID + 7, Node: "n2", System: true, Token: public}
	welcome, err := wire.Handshake(conn, wire.NewReader(conn), hello, secret)
	if err != nil || welcome.Uid != claims.UID || welcome.DataAddress != "" {
		t.Errorf("another user's: %v, %v", welcome, err)
	}
	// A session ends with its token.
	c, err := withToken(t, address, mint(fabricKey, func(c *wire.TokenClaims) { c.Expires = time.Now().Add(time.Second) }))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, err = admin.BufferInfo(t.Context(), c, "mine") // the connection breaks, and the next is refused
		if client.KindOf(err) == client.ErrPermission || time.Now().After(deadline) {
			break
		}
	}
	if client.KindOf(err) != client.ErrPermission || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after it expired: %v", err)
	}
}

// recorder keeps a client's requests.
type recorder struct {
	net.Conn
	mu   sync.Mutex
	sent []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.sent = append(r.sent, p...)
	r.mu.Unlock()
	return r.Conn.Write(p)
}

// TestReplay: a recorded handshake, with a key or a token, cannot be repeated, and the secret is
// not in it.
func TestReplay(t *testing.T) {
	t.Parallel()
	_, address, token := tokenNode(t)
	public, secret, err := wire.ParseToken([]byte(token))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ token, key []byte }{"key": {nil, fabricKey}, "token": {public, secret}} {
		conn := &recorder{Conn: dialTCP(t, address)}
		if _, err := wire.Handshake(conn, wire.NewReader(conn), &wire.Hello{Client: "test", Token: c.token}, c.key); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(conn.sent), string(c.key)) {
			t.Errorf("%s: the secret was sent", name)
		}
		again := dialTCP(t, address)
		if _, err := again.Write(conn.sent); err != nil {
			t.Fatal(err)
		}
		in := wire.NewReader(again)
		again.SetDeadline(time.Now().Add(10 * time.Second))
		if head, _, err := in.Next(); err != nil || !head.Has(wire.FlagMore) {
			t.Fatalf("%s: %v, %v", name, head, err)
		}
		head, message, err := in.Next()
		var m wire.Error
		if err != nil || !head.Has(wire.FlagError) || proto.Unmarshal(message, &m) != nil || bb.KindOf(m.AsError()) != bb.Permission {
			t.Errorf("%s: a recorded handshake was answered with %v, %v", name, head, err)
		}
	}
}
