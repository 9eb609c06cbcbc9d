package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
)

// daemon answers a handshake on the other end of a pipe.
type daemon func(t *testing.T, conn net.Conn, in *Reader)

// welcomes answers Hello at once.
func welcomes(version uint32) daemon {
	return func(t *testing.T, conn net.Conn, in *Reader) {
		head, _, err := in.Next()
		if err != nil || head.Type != Type_TYPE_HELLO {
			t.Errorf("got %v, %v instead of Hello", head, err)
		}
		writeReply(conn, head, FlagReply, &Welcome{Version: version, Node: "n"})
	}
}

// challenges requests a proof of a key.
func challenges(key []byte) daemon {
	return func(t *testing.T, conn net.Conn, in *Reader) {
		head, message, err := in.Next()
		var hello Hello
		if err != nil || proto.Unmarshal(message, &hello) != nil {
			t.Errorf("no Hello: %v", err)
		}
		nonce := newNonce()
		writeReply(conn, head, FlagReply|FlagMore, &Challenge{Nonce: nonce, Proof: exchange(t, conn, hello.Nonce, nonce).DaemonProof(key)})
		head, message, err = in.Next()
		var prove Prove
		if err != nil || proto.Unmarshal(message, &prove) != nil {
			return // the client closed first, and reports that itself
		}
		if !exchange(t, conn, hello.Nonce, nonce).CheckClient(prove.Proof, [][]byte{key}, &hello) {
			t.Error("a proof that is none")
		}
		writeReply(conn, head, FlagReply, &Welcome{Version: MaxVersion, Node: "n"})
	}
}

func exchange(t *testing.T, conn net.Conn, theirs, ours []byte) Exchange {
	x, err := NewExchange(conn, theirs, ours)
	if err != nil {
		t.Error(err)
	}
	return x
}

func writeReply(conn net.Conn, to Header, flags uint16, m proto.Message) {
	_, _ = WriteFrame(conn, nil, to.Type, flags, to.Request, m, nil)
}

func TestHandshake(t *testing.T) {
	key, other := []byte("sesame"), []byte("barley")
	for _, c := range []struct {
		name   string
		key    []byte
		daemon daemon
		kind   bb.Kind
	}{
		{"without a key", nil, welcomes(MaxVersion), 0},
		{"a key that nobody asks for", key, welcomes(MaxVersion), 0},
		{"the same key", key, challenges(key), 0},
		{"another key", key, challenges(other), bb.Permission},
		{"no key", nil, challenges(key), bb.Permission},
		{"a newer version", nil, welcomes(MaxVersion + 1), bb.Unsupported},
		{"no daemon", nil, func(_ *testing.T, conn net.Conn, in *Reader) {
			in.Next()
			io.WriteString(conn, "HTTP/1.1 400 Bad Request: "+string(make([]byte, HeaderSize)))
		}, bb.Invalid},
		{"a refusal", nil, func(_ *testing.T, conn net.Conn, in *Reader) {
			head, _, _ := in.Next()
			writeReply(conn, head, FlagReply|FlagError, FromError(bb.E(bb.Busy, "handshake", "", "full")))
		}, bb.Busy},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.daemon(t, far, NewReader(far))
				far.Close()
			}()
			welcome, err := Handshake(near, NewReader(near), &Hello{Client: "c", Uid: 7, Gid: 8}, c.key)
			near.Close()
			<-done
			switch {
			case c.kind == 0 && (err != nil || welcome.Node != "n"):
				t.Fatalf("got %v, %v", welcome, err)
			case c.kind != 0 && bb.KindOf(err) != c.kind:
				t.Fatalf("got %v, want kind %v", err, c.kind)
			}
		})
	}
}

func TestTicket(t *testing.T) {
	mine, other := NewTicket(), NewTicket()
	for _, c := range []struct {
		name         string
		shown, known []byte
		near, far    bool // which side accepts
	}{
		{"the session's", mine, mine, true, true},
		{"another one's", other, mine, false, false},
		{"none", nil, mine, false, false},
		{"of a session that ended", mine, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := net.Pipe()
			checked := make(chan error, 1)
			go func() {
				session, err := CheckTicket(far, func(id uint64) []byte {
					if id != 5 {
						t.Errorf("asked for session %d", id)
					}
					return c.known
				})
				if err == nil && session != 5 {
					err = errors.New("another session")
				}
				far.Close()
				checked <- err
			}()
			err := ShowTicket(near, 5, c.shown)
			near.Close()
			if (err == nil) != c.near {
				t.Errorf("the dialer got %v", err)
			}
			if err := <-checked; (err == nil) != c.far {
				t.Errorf("the listener got %v", err)
			}
		})
	}
}

// TestTicketIsNotShown: a listener without the ticket gets no usable proof from a dialer.
func TestTicketIsNotShown(t *testing.T) {
	ticket := NewTicket()
	near, far := net.Pipe()
	var seen bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.CopyN(&seen, far, 8+NonceSize)
		far.Write(make([]byte, 2*NonceSize))
		io.Copy(&seen, far)
	}()
	if err := ShowTicket(near, 1, ticket); bb.KindOf(err) != bb.Permission {
		t.Errorf("an impostor got %v", err)
	}
	near.Close()
	<-done
	if seen.Len() != 8+NonceSize {
		t.Errorf("the dialer went on: %d bytes", seen.Len())
	}
}
