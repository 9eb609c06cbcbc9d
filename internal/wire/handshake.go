package wire

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/clustercert"
)

// handshakeTimeout bounds how long a peer that is not a daemon can keep a dialer.
const handshakeTimeout = 10 * time.Second

// Handshake introduces a client, or a daemon acting as one, on a connection that it
// dialled, and returns the daemon's answer. It fills in hello's versions, and its
// nonce if there are keys (or the secret of hello's token). Then it proves possession of one of
// them at the daemon's request, after checking the daemon's own proof. In reads from conn and is at
// the first reply after Welcome when it returns.
//
// The errors are of kind permission, invalid (the listener is no daemon), unsupported, or of the
// kind of the daemon's answer. An error of the connection itself is not of a kind. The caller keeps
// the connection, and closes it after an error.
func Handshake(conn net.Conn, in *Reader, hello *Hello, keys ...[]byte) (*Welcome, error) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k []byte) bool { return len(k) == 0 })
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	address := conn.RemoteAddr().String()
	hello.MinVersion, hello.MaxVersion = MinVersion, MaxVersion
	if len(keys) > 0 {
		hello.Nonce = newNonce()
	}
	if _, err := WriteFrame(conn, nil, Type_TYPE_HELLO, 0, 1, hello, nil); err != nil {
		return nil, err
	}
	head, message, err := in.Next()
	if err == nil && head.Has(FlagMore) {
		head, message, err = prove(conn, in, hello, keys, message)
	}
	if err != nil {
		return nil, notADaemon(address, err)
	}
	welcome := new(Welcome)
	if err := DecodeReply(head, message, welcome); err != nil {
		return nil, err
	}
	if !head.Has(FlagReply) || welcome.Version < MinVersion || welcome.Version > MaxVersion {
		return nil, bb.E(bb.Unsupported, "dial", address, fmt.Sprintf("the daemon, %s, chose protocol version %d and was offered %v", welcome.Server, welcome.Version, Own())).
			WithRemedy("install releases with a version in common on both sides")
	}
	conn.SetDeadline(time.Time{})
	return welcome, nil
}

func newNonce() []byte {
	nonce := make([]byte, NonceSize)
	rand.Read(nonce) // never fails (crypto/rand)
	return nonce
}

// prove answers a challenge, after checking the daemon's own proof.
func prove(conn net.Conn, in *Reader, hello *Hello, keys [][]byte, message []byte) (Header, []byte, error) {
	var c Challenge
	address := conn.RemoteAddr().String()
	if err := proto.Unmarshal(message, &c); err != nil {
		return Header{}, nil, err
	}
	if len(keys) == 0 {
		return Header{}, nil, bb.E(bb.Permission, "dial", address, "the daemon requires a proof of the shared key").
			WithRemedy("give the key file, a token or a certificate")
	}
	x, err := NewExchange(conn, hello.Nonce, c.Nonce)
	if err != nil {
		return Header{}, nil, err
	}
	key := x.Common(c.Proof, keys)
	if len(c.Nonce) != NonceSize || key == nil {
		e := bb.E(bb.Permission, "dial", address, "the daemon did not prove the shared key").WithRemedy("give both sides the same key file; a daemon of the first release uses another proof: upgrade it")
		if len(hello.Token) > 0 {
			e = bb.E(bb.Permission, "dial", address, "the daemon did not prove the token").
				WithRemedy("make one with bbctl token at a daemon of this cluster; the key that it was made with may have been replaced")
		}
		return Header{}, nil, e
	}
	if _, err := WriteFrame(conn, nil, Type_TYPE_PROVE, 0, 2, &Prove{Proof: x.ClientProof(key, hello)}, nil); err != nil {
		return Header{}, nil, err
	}
	return in.Next()
}

// notADaemon gives frames that are none a kind of their own, since another attempt is of no use.
func notADaemon(address string, err error) error {
	var malformed *FrameError
	var alert tls.AlertError
	if errors.As(err, &alert) { // with TLS 1.3, a daemon's answer to a certificate comes late
		return clustercert.Refused(address, err)
	}
	if errors.As(err, &malformed) {
		return &bb.Error{Kind: bb.Invalid, Op: "dial", Path: address, Err: fmt.Errorf("the server is not a daemon: %w", err)}
	}
	return err
}

// DecodeReply reads a reply's message, or returns the error that the reply is. A nil
// reply reads nothing.
func DecodeReply(head Header, message []byte, reply proto.Message) error {
	if head.Has(FlagError) {
		var m Error
		if err := proto.Unmarshal(message, &m); err != nil {
			return malformedReply(head, err)
		}
		return m.AsErrorOf(head.Type)
	}
	if reply == nil {
		return nil
	}
	if err := proto.Unmarshal(message, reply); err != nil {
		return malformedReply(head, err)
	}
	return nil
}

func malformedReply(head Header, err error) error {
	return &bb.Error{Kind: bb.Internal, Op: "request", Path: head.Type.String(), Err: err}
}
