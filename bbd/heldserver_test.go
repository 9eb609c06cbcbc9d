package bbd_test

import (
	"bytes"
	"net"
	"slices"
	"sync"

	"forebay/meta/conn"
)

// heldServer makes connections to a namespace's server that hold a message back, and all after it.
type heldServer struct {
	conn.InProcess
	hold *messageHold
}

// messageHold holds back the first message that has some strings, until release is called. The zero value holds none.
type messageHold struct {
	mu   sync.Mutex
	has  []string
	held chan struct{} // closed when the message is held
	end  chan struct{}
}

// arm has the next message with some strings held back. held is closed when it is.
func (h *messageHold) arm(has ...string) (held <-chan struct{}, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.has, h.held, h.end = has, make(chan struct{}), make(chan struct{})
	return h.held, sync.OnceFunc(func() { close(h.end) })
}

func (h *messageHold) wait(p []byte) {
	h.mu.Lock()
	meets := h.has != nil && !slices.ContainsFunc(h.has, func(s string) bool { return !bytes.Contains(p, []byte(s)) })
	if meets {
		h.has = nil
		close(h.held)
	}
	end := h.end
	h.mu.Unlock()
	if meets {
		<-end
	}
}

func (s heldServer) InProcessConn() (net.Conn, error) {
	c, err := s.InProcess.InProcessConn()
	if err != nil {
		return nil, err
	}
	return heldConn{c, s.hold}, nil
}

type heldConn struct {
	net.Conn
	hold *messageHold
}

func (c heldConn) Write(p []byte) (int, error) {
	c.hold.wait(p)
	return c.Conn.Write(p)
}
