package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
)

// handshakeTimeout bounds how long a peer that is not a daemon can keep a dialer.
const handshakeTimeout = 10 * time.Second

// Handshake introduces a client, or a daemon acting as one, on a connection that it
// dialled, and returns what the daemon answers. It fills in hello's versions, and its
// nonce where there is a key: then it proves that it knows the key, if asked to, after
// checking that the daemon does. In reads from conn and is at the first reply after
// Welcome when it returns.
//
// The errors are of kind permission, invalid (what answers is no daemon), unsupported,
// or whatever the daemon answered; an error of the connection itself is not of a kind.
// The connection stays the caller's, who closes it after an error.
func Handshake(conn net.Conn, in *Reader, hello *Hello, key []byte) (*Welcome, error) {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	address := conn.RemoteAddr().String()
	hello.MinVersion, hello.MaxVersion = MinVersion, MaxVersion
	if len(key) > 0 {
		hello.Nonce = newNonce()
	}
	if _, err := WriteFrame(conn, nil, Type_TYPE_HELLO, 0, 1, hello, nil); err != nil {
		return nil, err
	}
	head, message, err := in.Next()
	if err == nil && head.Has(FlagMore) {
		head, message, err = prove(conn, in, hello, key, message)
	}
	if err != nil {
		return nil, notADaemon(address, err)
	}
	welcome := new(Welcome)
	if err := DecodeReply(head, message, welcome); err != nil {
		return nil, err
	}
	if !head.Has(FlagReply) || welcome.Version < MinVersion || welcome.Version > MaxVersion {
		return nil, bb.E(bb.Unsupported, "dial", address, fmt.Sprintf("the daemon chose protocol version %d", welcome.Version)).
			WithRemedy("install the same release on both sides")
	}
	conn.SetDeadline(time.Time{})
	return welcome, nil
}

func newNonce() []byte {
	nonce := make([]byte, NonceSize)
	rand.Read(nonce) // never fails (crypto/rand)
	return nonce
}

// prove answers a challenge, after checking that the daemon knows the key itself.
func prove(conn net.Conn, in *Reader, hello *Hello, key, message []byte) (Header, []byte, error) {
	var c Challenge
	address := conn.RemoteAddr().String()
	switch err := proto.Unmarshal(message, &c); {
	case err != nil:
		return Header{}, nil, err
	case len(key) == 0:
		return Header{}, nil, bb.E(bb.Permission, "dial", address, "the daemon asks for a proof of the shared key").
			WithRemedy("give the key file")
	case len(c.Nonce) != NonceSize || !hmac.Equal(c.Proof, DaemonProof(key, hello.Nonce, c.Nonce)):
		return Header{}, nil, bb.E(bb.Permission, "dial", address, "the daemon does not know the shared key").
			WithRemedy("give both sides the same key file")
	}
	proof := &Prove{Proof: ClientProof(key, hello.Nonce, c.Nonce, hello.Uid, hello.Gid)}
	if _, err := WriteFrame(conn, nil, Type_TYPE_PROVE, 0, 2, proof, nil); err != nil {
		return Header{}, nil, err
	}
	return in.Next()
}

// notADaemon gives frames that are none a kind of their own: trying again is no use.
func notADaemon(address string, err error) error {
	var malformed *FrameError
	if errors.As(err, &malformed) {
		return &bb.Error{Kind: bb.Invalid, Op: "dial", Path: address, Err: fmt.Errorf("what answers is no daemon: %w", err)}
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
		return m.AsError()
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
