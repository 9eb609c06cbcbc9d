package tcp

import (
	"io"
	"time"

	"forebay/rdma"
)

// control is the control stream. Its pings show each side that the other is alive.
type control struct {
	conn   *conn
	socket socket
}

// write is the writer's thread. It sends a ping three times within the peer's time limit.
func (k *control) write() {
	limit := k.conn.opts.PeerTimeout
	tick := time.NewTicker(limit / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.conn.dying:
			return
		}
		err := k.socket.SetWriteDeadline(deadlineIn(limit))
		if err == nil {
			_, err = k.socket.Write(ping[:])
		}
		if err != nil {
			k.conn.fail(k.conn.gone(err))
			return
		}
	}
}

// read is the reader's thread.
func (k *control) read() {
	for {
		if err := k.readPing(); err != nil {
			k.conn.fail(k.conn.gone(err))
			return
		}
	}
}

func (k *control) readPing() error {
	if err := k.socket.SetReadDeadline(deadlineIn(k.conn.opts.PeerTimeout)); err != nil {
		return err
	}
	var got [len(ping)]byte
	if _, err := io.ReadFull(k.socket, got[:]); err != nil {
		return err
	}
	if got != ping {
		return rdma.ErrProtocol
	}
	return nil
}
