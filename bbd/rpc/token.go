package rpc

import (
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// identifyByToken determines the identity of a client with a token. The claims of
// its Hello do not count.
func (s *Session) identifyByToken(in *wire.Reader, r *Request, hello *wire.Hello) error {
	claims, err := wire.ReadTokenClaims(hello.Token)
	if err != nil {
		return err
	}
	keys := s.server.o.Keys.Keys()
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
	s.caller = access.Of(claims.UID, claims.GID)
	s.caller.System = false
	return nil
}

// expire ends a session when its token does.
func (s *Session) expire() (stop func() bool) {
	if s.token == nil {
		return func() bool { return true }
	}
	return time.AfterFunc(time.Until(s.token.Expires), func() { s.conn.Close() }).Stop
}

// permits refuses requests that the session's token does not allow.
func (s *Session) permits(h Handler, typ wire.Type, m proto.Message) error {
	if s.token == nil {
		return nil
	}
	named, ok := m.(interface{ GetBuffer() string })
	if h.token && (!ok || named.GetBuffer() == s.token.Buffer) {
		return nil
	}
	return bb.E(bb.Permission, "request", typ.String(), "the token is for the files of buffer "+s.token.Buffer+" alone")
}
