package bbd

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// maxTokenLife bounds how long a token can be used by who has found it.
const maxTokenLife = 30 * 24 * time.Hour

// token makes a token for a buffer, which acts as the buffer's owner.
func (d *Daemon) token(ctx context.Context, r *request, m *wire.TokenRequest) (proto.Message, error) {
	b, err := r.s.buffer(ctx, "token", m.Buffer)
	if err != nil {
		return nil, err
	}
	spec, keys, life := b.spec(), d.cfg.Keys.Keys(), time.Duration(m.LifetimeNs)
	switch {
	case !r.s.cred.Owns(spec.UID):
		return nil, access.Denied("token", b.address(""), "make tokens for this buffer")
	case len(keys) == 0:
		return nil, bb.E(bb.Unsupported, "token", b.address(""), "this daemon has no cluster key to make tokens with").WithRemedy("set key_file")
	case life <= 0 || life > maxTokenLife:
		return nil, bb.E(bb.Invalid, "token", life.String(), fmt.Sprintf("the lifetime is not above 0 and up to %v", maxTokenLife))
	}
	expires := time.Now().Add(life)
	token, err := wire.NewToken(keys[0], &wire.TokenClaims{
		Buffer: spec.Name, Created: spec.Created, UID: spec.UID, GID: spec.GID, Expires: expires,
	})
	if err != nil {
		return nil, err
	}
	r.s.logger().Info("a token was made", "buffer", spec.Name, "expires", expires)
	return &wire.Token{Token: token, ExpiresNs: expires.UnixNano()}, nil
}

// identifyByToken finds out who a client with a token is. What it says of itself in
// Hello does not count.
func (s *session) identifyByToken(in *wire.Reader, r *request, hello *wire.Hello) error {
	claims, err := wire.ReadTokenClaims(hello.Token)
	if err != nil {
		return err
	}
	keys := s.d.cfg.Keys.Keys()
	if len(keys) == 0 {
		return bb.E(bb.Unsupported, "handshake", hello.Client, "this daemon has no cluster key to check tokens with").WithRemedy("set key_file")
	}
	secrets := make([][]byte, len(keys))
	for i, key := range keys {
		if secrets[i], err = wire.TokenSecret(key, hello.Token); err != nil {
			return err
		}
	}
	if err := s.challenge(in, r, hello, secrets); err != nil {
		return err
	}
	if !time.Now().Before(claims.Expires) {
		return bb.E(bb.Permission, "handshake", hello.Client, "the token has expired").WithRemedy("make one: bbctl token " + claims.Buffer)
	}
	s.token = claims
	s.cred = access.Of(claims.UID, claims.GID)
	s.cred.System = false
	return nil
}

// expire ends a session when its token does.
func (s *session) expire() (stop func() bool) {
	if s.token == nil {
		return func() bool { return true }
	}
	return time.AfterFunc(time.Until(s.token.Expires), func() { s.conn.Close() }).Stop
}

// withToken are the requests that a session with a token may make: those on the files
// of its buffer. The memory itself stays out of its reach, as regions hold bytes of all
// buffers of a user.
var withToken = map[wire.Type]bool{
	wire.Type_TYPE_CANCEL: true, wire.Type_TYPE_BUFFER_GET: true, wire.Type_TYPE_BUFFER_LIST: true,
	wire.Type_TYPE_STAT: true, wire.Type_TYPE_LIST: true, wire.Type_TYPE_MKDIR: true, wire.Type_TYPE_RENAME: true,
	wire.Type_TYPE_REMOVE: true, wire.Type_TYPE_SETATTR: true, wire.Type_TYPE_LOST: true, wire.Type_TYPE_OPEN: true,
	wire.Type_TYPE_COMMIT: true, wire.Type_TYPE_EXTENTS: true, wire.Type_TYPE_CLOSE: true, wire.Type_TYPE_UNPIN: true,
	wire.Type_TYPE_LEASE: true, wire.Type_TYPE_RETURN: true, wire.Type_TYPE_DRAIN: true, wire.Type_TYPE_RECEIPT: true,
	wire.Type_TYPE_TXN_BEGIN: true, wire.Type_TYPE_TXN_ADOPT: true, wire.Type_TYPE_TXN_COMMIT: true,
	wire.Type_TYPE_TXN_ABORT: true, wire.Type_TYPE_TXN_RENEW: true, wire.Type_TYPE_TXN_GET: true,
}

// permits refuses what the session's token does not allow.
func (s *session) permits(typ wire.Type, m proto.Message) error {
	if s.token == nil {
		return nil
	}
	named, ok := m.(interface{ GetBuffer() string })
	if withToken[typ] && (!ok || named.GetBuffer() == s.token.Buffer) {
		return nil
	}
	return bb.E(bb.Permission, "request", typ.String(), "the token is for the files of buffer "+s.token.Buffer+" alone")
}

// tokenFits reports whether the session's token, if it has one, is for a buffer.
func (s *session) tokenFits(spec *bb.Buffer) bool {
	return s.token == nil || spec.Name == s.token.Buffer && spec.Created.Equal(s.token.Created)
}

// enter checks what buffer does not: the token, before anybody learns whether a buffer
// of another name is there.
func (s *session) enter(ctx context.Context, op, name string) (*buffer, error) {
	refused := bb.E(bb.Permission, op, bb.Address{Buffer: name}.String(), "the token is not for this buffer")
	if s.token != nil && name != s.token.Buffer {
		return nil, refused
	}
	b, err := s.d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	if spec := b.spec(); !s.tokenFits(&spec) {
		return nil, refused
	}
	return b, nil
}
