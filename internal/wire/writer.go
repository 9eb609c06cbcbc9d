package wire

import (
	"io"
	"sync"

	"google.golang.org/protobuf/proto"
)

// maxPending bounds the bytes that a Writer holds for a peer that does not read.
const maxPending = 8 << 20

// Writer sends frames on a connection for any number of goroutines. Frames that
// come while another goroutine is writing leave together in its next system call,
// so that a pipeline of small replies costs few of them, and a lone one is not
// delayed. There is no goroutine behind it.
type Writer struct {
	conn io.Writer
	mu   struct {
		sync.Mutex
		room    sync.Cond
		pending []byte
		spare   []byte
		writing bool
		err     error
	}
}

// NewWriter returns a Writer to conn. Closing conn unblocks every Send.
func NewWriter(conn io.Writer) *Writer {
	w := &Writer{conn: conn}
	w.mu.room.L = &w.mu
	return w
}

// Send queues one frame and returns when it has been written, or when another
// goroutine that is writing has taken it over. In that case an error reaches the next Send. Data
// belongs to the caller again when Send returns.
func (w *Writer) Send(typ Type, flags uint16, request uint64, m proto.Message, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.queue(typ, flags, request, m, data); err != nil || w.mu.writing {
		return err
	}
	return w.drain()
}

// UnsentError is the error of a frame of which no byte has left.
type UnsentError struct{ err error }

func (e *UnsentError) Error() string { return e.err.Error() }

// Unwrap returns the connection's error.
func (e *UnsentError) Unwrap() error { return e.err }

// Queue is Send for a frame that another one follows at once. It leaves with that, or with the next
// Flush.
func (w *Writer) Queue(typ Type, flags uint16, request uint64, m proto.Message, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue(typ, flags, request, m, data)
}

// Flush sends the frames that Queue has left.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.writing || len(w.mu.pending) == 0 {
		return w.mu.err
	}
	return w.drain()
}

// queue adds a frame to the pending ones. The lock is held.
func (w *Writer) queue(typ Type, flags uint16, request uint64, m proto.Message, data []byte) error {
	for len(w.mu.pending) > maxPending && w.mu.err == nil {
		if w.mu.writing {
			w.mu.room.Wait()
		} else if err := w.drain(); err != nil {
			return err
		}
	}
	if w.mu.err != nil {
		return w.mu.err
	}
	frame, err := AppendFrame(w.mu.pending, typ, flags, request, m, len(data))
	if err != nil {
		return err
	}
	w.mu.pending = append(frame, data...)
	return nil
}

// drain writes until nothing is pending. The lock is held on entry and on return,
// not while writing. It fails with *UnsentError if no byte that was pending on entry has
// left.
func (w *Writer) drain() error {
	w.mu.writing = true
	left := false
	for len(w.mu.pending) > 0 && w.mu.err == nil {
		out := w.mu.pending
		w.mu.pending = w.mu.spare[:0]
		w.mu.Unlock()
		n, err := w.conn.Write(out)
		w.mu.Lock()
		left = left || n > 0
		w.mu.spare = keep(out)
		w.mu.err = err
		w.mu.room.Broadcast()
	}
	w.mu.writing = false
	if w.mu.err != nil && !left {
		return &UnsentError{w.mu.err}
	}
	return w.mu.err
}

// keep drops a buffer that one burst made large.
func keep(b []byte) []byte {
	if cap(b) > readAhead {
		return nil
	}
	return b
}
