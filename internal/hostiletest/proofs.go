package hostiletest

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/wire"
)

// Attacks with proofs, over TCP.

// introduce begins a session over TCP, and proves possession of a key, or of a false one. Unlike a client
// it does not check whether the daemon has the key. It fails where it is let in.
func (a *attacker) introduce(hello *wire.Hello, key []byte) error {
	return introduce(a.dialTCP, hello, func(x wire.Exchange, _ []byte) []byte { return x.ClientProof(key, hello) })
}

// introduce shows a proof. prove gets the daemon's own.
func introduce(dial func() (net.Conn, error), hello *wire.Hello, prove func(x wire.Exchange, theirs []byte) []byte) error {
	conn, err := dial()
	if err != nil {
		return nil // it gets no connection
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
		return fmt.Errorf("let in at once, as %v", hello)
	}
	var c wire.Challenge
	if err := proto.Unmarshal(message, &c); err != nil {
		return err
	}
	x, err := wire.NewExchange(conn, hello.Nonce, c.Nonce)
	if err != nil {
		return err
	}
	if _, err := wire.WriteFrame(conn, nil, wire.Type_TYPE_PROVE, 0, 2, &wire.Prove{Proof: prove(x, c.Proof)}, nil); err != nil {
		return nil
	}
	if head, _, err = in.Next(); err == nil && !head.Has(wire.FlagError) {
		return fmt.Errorf("let in with a proof that is none, as %v", hello)
	}
	return nil
}

// proofs shows keys that are none, sends the daemon's own proof back, and sends a proof before the
// challenge.
func (a *attacker) proofs() error {
	for range 20 {
		if err := a.introduce(&wire.Hello{Client: "hostile", Uid: victimUID}, a.bytes(32)); err != nil {
			return err
		}
	}
	for _, hello := range []*wire.Hello{{Uid: victimUID}, {}, {Node: "n2", System: true}, {Nonce: []byte{1}}} {
		for _, proof := range []func(theirs []byte) []byte{
			func(theirs []byte) []byte { return theirs },
			func([]byte) []byte { return nil },
			func([]byte) []byte { return make([]byte, 32) },
			func([]byte) []byte { return make([]byte, wire.MaxMessage/2) },
		} {
			prove := func(_ wire.Exchange, theirs []byte) []byte { return proof(theirs) }
			if err := introduce(a.dialTCP, proto.CloneOf(hello), prove); err != nil {
				return err
			}
		}
	}
	return a.unasked()
}

// unasked makes each request before the handshake.
func (a *attacker) unasked() error {
	for number := range wire.Type_name {
		conn, err := a.dialTCP()
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

// tokens changes a token of the attacker's, and claims more than its rights.
func (a *attacker) tokens() error {
	ctx, cancel := a.within()
	defer cancel()
	text, _, err := admin.Token(ctx, a.c, scratchBuffer, time.Hour)
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

// rootByCertificate acts as uid 0 with a client's certificate, whose holder may act for every user
// but root, on files of root's and of others.
func (a *attacker) rootByCertificate() (err error) {
	ctx, cancel := a.within()
	defer cancel()
	c, err := client.Dial(ctx, client.Options{
		Address: "tcp://" + a.TCP, CA: a.TLS.CA, Cert: a.TLS.Cert, Key: a.TLS.Key, User: &client.User{},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	spec := admin.BufferSpec{Name: a.name("certified"), NoWait: true}
	if _, err := admin.CreateBuffer(ctx, c, spec); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.DiscardBuffer(ctx, c, spec.Name)) }()
	if err := c.Buffer(spec.Name).WriteFile(ctx, "planted", []byte("the attacker's"), 0o600); err != nil {
		return err
	}
	denied := func(what string, err error) error {
		if errors.Is(err, client.ErrPermission) {
			return nil
		}
		return fmt.Errorf("%s by uid 0 with a client's certificate: %v, want %v", what, err, client.ErrPermission)
	}
	for _, path := range []string{filepath.Join(a.Roots, "existing"), filepath.Join(a.Scratch, "private/data")} {
		_, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: spec.Name, Path: "in", URL: fileURL(path)}, nil)
		if err := denied("a stage-in of "+path, err); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(a.Roots, "closed"), filepath.Join(a.Scratch, "private")} {
		_, err := admin.StageOut(ctx, c, admin.StageRequest{Buffer: spec.Name, URL: fileURL(dir)}, nil)
		if err := denied("a stage-out to "+dir, err); err != nil {
			return err
		}
		_, err = admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: a.name("certified"), Backing: fileURL(dir)})
		if err := denied("a buffer on "+dir, err); err != nil {
			return err
		}
	}
	certified := func() (net.Conn, error) { return secured(a.TCP, a.TLS) }
	none := func(wire.Exchange, []byte) []byte { return nil }
	return introduce(certified, &wire.Hello{Client: "hostile", Node: "n2", System: true}, none) // that is no daemon's certificate
}
