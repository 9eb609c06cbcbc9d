package hostiletest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/wire"
)

// Attacks with proofs, over TCP.

// introduce begins a session over TCP.
func (a *attacker) introduce(hello *wire.Hello, keys ...[]byte) error {
	conn, err := net.Dial("tcp", a.TCP)
	if err != nil {
		return nil // it gets no connection
	}
	defer conn.Close()
	w, err := wire.Handshake(conn, wire.NewReader(conn), hello, keys...)
	if err == nil {
		return fmt.Errorf("let in with %v", w)
	}
	return nil
}

// proofs shows keys that are none, sends the daemon's own proof back, and speaks before it is asked.
func (a *attacker) proofs() error {
	for range 20 {
		if err := a.introduce(&wire.Hello{Client: "hostile", Uid: victimUID}, a.bytes(32)); err != nil {
			return err
		}
	}
	for _, hello := range []*wire.Hello{{Uid: victimUID}, {}, {Node: "n2", System: true}, {Nonce: []byte{1}}} {
		for _, prove := range []func(theirs []byte) []byte{
			func(theirs []byte) []byte { return theirs },
			func([]byte) []byte { return nil },
			func([]byte) []byte { return make([]byte, 32) },
			func([]byte) []byte { return make([]byte, wire.MaxMessage/2) },
		} {
			if err := a.answer(proto.CloneOf(hello), prove); err != nil {
				return err
			}
		}
	}
	return a.unasked()
}

// answer proves what it likes.
func (a *attacker) answer(hello *wire.Hello, prove func(theirs []byte) []byte) error {
	conn, err := net.Dial("tcp", a.TCP)
	if err != nil {
		return nil
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	hello.MinVersion, hello.MaxVersion = wire.MinVersion, wire.MaxVersion
	if hello.Nonce == nil {
		hello.Nonce = make([]byte, wire.NonceSize)
	}
	in := wire.NewReader(conn)
	if _, err := wire.WriteFrame(conn, nil, wire.Type_TYPE_HELLO, 0, 1, hello, nil); err != nil {
		return nil
	}
	head, message, err := in.Next()
	if err != nil || head.Has(wire.FlagError) {
		return nil
	}
	if !head.Has(wire.FlagMore) {
		return errors.New("let in at once")
	}
	var c wire.Challenge
	if err := proto.Unmarshal(message, &c); err != nil {
		return err
	}
	if _, err := wire.WriteFrame(conn, nil, wire.Type_TYPE_PROVE, 0, 2, &wire.Prove{Proof: prove(c.Proof)}, nil); err != nil {
		return nil
	}
	if head, _, err = in.Next(); err == nil && !head.Has(wire.FlagError) {
		return fmt.Errorf("let in with a proof that is none, as %v", hello)
	}
	return nil
}

// unasked makes each request before the handshake.
func (a *attacker) unasked() error {
	for number := range wire.Type_name {
		conn, err := net.Dial("tcp", a.TCP)
		if err != nil {
			return nil
		}
		conn.SetDeadline(time.Now().Add(patience))
		_, _ = wire.WriteFrame(conn, nil, wire.Type(number), 0, 1, &wire.BufferName{Name: victimsBuffer}, nil)
		head, _, err := wire.NewReader(conn).Next()
		conn.Close()
		if err == nil && !head.Has(wire.FlagError) && wire.Type(number) != wire.Type_TYPE_HELLO {
			return fmt.Errorf("%v is answered before the handshake", wire.Type(number))
		}
	}
	return nil
}

// tokens changes a token of the attacker's, and claims more than it says.
func (a *attacker) tokens() error {
	ctx, cancel := a.within()
	defer cancel()
	text, _, err := a.c.Token(ctx, scratchBuffer, time.Hour)
	if err != nil {
		return err
	}
	public, secret, err := wire.ParseToken([]byte(text))
	if err != nil {
		return err
	}
	all := slices.Concat(public, secret)
	for range 40 {
		b := slices.Clone(all)
		b[a.rnd.IntN(len(b))] ^= byte(1 + a.rnd.IntN(255))
		if err := a.introduce(&wire.Hello{Client: "hostile", Token: b[:len(public)]}, b[len(public):]); err != nil {
			return err
		}
	}
	for _, p := range [][]byte{append(slices.Clone(public), 'x'), public[:len(public)-1], {1}, make([]byte, 1<<19)} {
		if err := a.introduce(&wire.Hello{Client: "hostile", Token: p}, secret); err != nil {
			return err
		}
	}
	return nil
}
