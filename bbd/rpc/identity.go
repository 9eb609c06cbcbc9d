package rpc

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/unixsocket"
	"forebay/internal/wire"
)

// identify determines the client's identity: on a unix socket from the kernel
// (SO_PEERCRED, unix(7)), over TCP from the client's own claim after it has proven that it
// may make it.
func (s *Session) identify(in *wire.Reader, r *Request, hello *wire.Hello) error {
	if conn, ok := s.conn.(*net.UnixConn); ok {
		ucred, err := unixsocket.Peer(conn)
		if err != nil {
			return bb.Wrap("handshake", hello.Client, err)
		}
		s.local, s.pid = true, ucred.Pid
		s.caller = access.Of(ucred.Uid, ucred.Gid)
		return nil
	}
	if len(hello.Token) > 0 {
		return s.identifyByToken(in, r, hello)
	}
	proven, err := s.proven(in, r, hello)
	if err != nil {
		return err
	}
	if hello.Node != "" && proven < clustercert.Daemon {
		return bb.E(bb.Permission, "handshake", hello.Client, "the client claims to be node "+hello.Node+", and has not proven to be a daemon").
			WithRemedy("give it the cluster key, or a daemon's certificate")
	}
	s.caller = access.Of(hello.Uid, hello.Gid)
	// Unless another daemon vouches for it, another machine's root, or a namesake of the daemon's
	// user, has no special rights here.
	s.peer = bb.NodeID(hello.Node)
	s.caller.Governs = hello.Uid == 0
	s.caller.NoRoot = hello.Uid == 0 && proven < clustercert.Daemon
	s.caller.Relayed = s.peer != ""
	s.caller.System = s.caller.Relayed && hello.System
	return nil
}

// proven determines the identities that a client over TCP may claim. They are a daemon's, if it
// holds the shared key or shows a daemon's certificate, or a client's. If nothing is configured
// (--insecure), every claim is accepted.
func (s *Session) proven(in *wire.Reader, r *Request, hello *wire.Hello) (clustercert.Role, error) {
	shown := clustercert.None
	if conn, ok := s.conn.(*tls.Conn); ok {
		shown = clustercert.PeerRole(conn)
	}
	keys := s.server.o.Keys.Keys()
	switch {
	case shown == clustercert.Daemon, shown == clustercert.Client && hello.Node == "":
		return shown, nil
	case len(keys) > 0:
		return clustercert.Daemon, s.challenge(in, r, hello, keys)
	case s.server.o.TLS != nil && shown == clustercert.None:
		return shown, bb.E(bb.Permission, "handshake", hello.Client, "the client shows no certificate of a client or a daemon").
			WithRemedy("give it one: bbctl cluster init")
	case s.server.o.TLS != nil:
		return shown, nil
	}
	return clustercert.Daemon, nil
}

// challenge makes the client prove that it holds a shared key, and proves the same to it.
func (s *Session) challenge(in *wire.Reader, r *Request, hello *wire.Hello, keys [][]byte) error {
	if len(hello.Nonce) != wire.NonceSize {
		return bb.E(bb.Permission, "handshake", hello.Client, "the client sent no nonce, and this daemon requires a proof of the shared key").
			WithRemedy("give the client the daemon's key file")
	}
	nonce := make([]byte, wire.NonceSize)
	rand.Read(nonce) // never fails (crypto/rand)
	x, err := wire.NewExchange(s.conn, hello.Nonce, nonce)
	if err != nil {
		return err
	}
	if err := r.More(&wire.Challenge{Nonce: nonce, Proof: x.DaemonProof(keys...)}, nil); err != nil {
		return err
	}
	head, message, err := in.Next()
	if err != nil {
		return err
	}
	var prove wire.Prove
	r.head = head
	if head.Type != wire.Type_TYPE_PROVE || head.DataLength != 0 || proto.Unmarshal(message, &prove) != nil || !x.CheckClient(prove.Proof, keys, hello) {
		if len(hello.Token) > 0 {
			return bb.E(bb.Permission, "handshake", hello.Client, "the token is not of this cluster, or the key that it was made with is gone")
		}
		return bb.E(bb.Permission, "handshake", hello.Client, "the client has another shared key").
			WithRemedy("give the client the daemon's key file")
	}
	return nil
}

// secure does the handshake of TLS, where that is on. A client without it receives an error.
func (s *Session) secure() error {
	conn, ok := s.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	err := conn.HandshakeContext(s.ctx)
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil {
		s.turnAway(plain.Conn, bb.E(bb.Permission, "handshake", conn.RemoteAddr().String(), "this daemon accepts TLS alone").
			WithRemedy("give the client certificates: --tls-ca, --tls-cert, --tls-key"))
	}
	return err
}

// notAClient is the end of a session whose first bytes are no request. For a client with TLS, an
// answer that is not TLS shows that.
func (s *Session) notAClient(err error) error {
	var malformed *wire.FrameError
	if errors.As(err, &malformed) {
		s.turnAway(s.conn, bb.E(bb.Invalid, "handshake", "", "a session begins with Hello, without TLS"))
	}
	return err
}

// turnAway sends a refused client the reason. Until it has hung up, its bytes are read. Otherwise
// the answer would be lost with the connection (RFC 9293 3.6.1).
func (s *Session) turnAway(conn net.Conn, why error) {
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := wire.WriteFrame(conn, nil, wire.Type_TYPE_HELLO, wire.FlagReply|wire.FlagError, 1, wire.FromError(why), nil); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
	}
}
