// Package wire is the control protocol. It has the protobuf schema that the SDKs share and the frames that
// carry its messages. It moves frames and checks them, and must never depend on the meaning of a message, which
// daemon and client have.
package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"

	"google.golang.org/protobuf/proto"
)

// Bounds of one frame. A larger one ends the session before it is allocated.
const (
	HeaderSize = 24
	MaxMessage = 1 << 20 // bytes of message
	MaxData    = 4 << 20 // bytes of data
)

// Flags of a frame.
const (
	FlagReply uint16 = 1 << iota // answers the request of the same id
	FlagError                    // the message is an Error
	FlagMore                     // further replies to the same request follow
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FrameError is the error of bytes that are not a frame of this protocol. Nothing after them on the
// same connection is valid.
type FrameError struct{ Reason string }

func (e *FrameError) Error() string { return "malformed frame: " + e.Reason }

// Header is the fixed part of a frame. forebay.proto draws it.
type Header struct {
	MessageLength uint32
	DataLength    uint32
	Request       uint64
	Type          Type
	Flags         uint16
}

// Has reports whether all of the given flags are set.
func (h Header) Has(flags uint16) bool { return h.Flags&flags == flags }

func (h Header) put(b []byte) {
	binary.LittleEndian.PutUint32(b[0:], h.MessageLength)
	binary.LittleEndian.PutUint32(b[4:], h.DataLength)
	binary.LittleEndian.PutUint64(b[8:], h.Request)
	binary.LittleEndian.PutUint16(b[16:], uint16(h.Type))
	binary.LittleEndian.PutUint16(b[18:], h.Flags)
}

func parseHeader(b []byte) (Header, error) {
	h := Header{
		MessageLength: binary.LittleEndian.Uint32(b[0:]),
		DataLength:    binary.LittleEndian.Uint32(b[4:]),
		Request:       binary.LittleEndian.Uint64(b[8:]),
		Type:          Type(binary.LittleEndian.Uint16(b[16:])),
		Flags:         binary.LittleEndian.Uint16(b[18:]),
	}
	if h.MessageLength > MaxMessage {
		return h, &FrameError{fmt.Sprintf("a message of %d bytes, at most %d are allowed", h.MessageLength, MaxMessage)}
	}
	if h.DataLength > MaxData {
		return h, &FrameError{fmt.Sprintf("data of %d bytes, at most %d are allowed", h.DataLength, MaxData)}
	}
	return h, nil
}

// AppendFrame appends the header and the message of a frame to dst. The data, of dataLength bytes,
// follows it on the connection. A nil message is an empty one.
func AppendFrame(dst []byte, typ Type, flags uint16, request uint64, m proto.Message, dataLength int) ([]byte, error) {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	if m != nil {
		var err error
		if dst, err = (proto.MarshalOptions{}).MarshalAppend(dst, m); err != nil {
			return dst[:start], err
		}
	}
	length := len(dst) - start - HeaderSize
	if length > MaxMessage || dataLength > MaxData {
		return dst[:start], &FrameError{fmt.Sprintf("a message of %d bytes and data of %d are too large to send", length, dataLength)}
	}
	h := Header{uint32(length), uint32(dataLength), request, typ, flags}
	frame := dst[start:]
	h.put(frame)
	binary.LittleEndian.PutUint32(frame[20:], frameSum(frame))
	return dst, nil
}

// frameSum covers the header up to the sum itself, and the message.
func frameSum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:20], castagnoli), castagnoli, frame[HeaderSize:])
}

// Reader reads frames. It is for one goroutine.
type Reader struct {
	r     io.Reader
	buf   []byte // buf[start:end] has been read and not been consumed
	start int
	end   int

	// Resize, if not nil, is called before the buffer for messages gets another size, in bytes. It
	// may wait. An error ends the reading.
	Resize func(from, to int) error
}

// readAhead is the size of one read from the connection. Many pipelined small requests come with
// one system call.
const readAhead = 64 << 10

// NewReader returns a Reader of the frames on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r, buf: make([]byte, readAhead)} }

// Next returns the next frame's header and message. The message is valid until the
// next call. If the header announces data, ReadData must be called before Next.
// io.EOF means that the connection ended between frames.
func (r *Reader) Next() (Header, []byte, error) {
	if err := r.fill(HeaderSize); err != nil {
		return Header{}, nil, err
	}
	h, err := parseHeader(r.buf[r.start:])
	if err != nil {
		return h, nil, err
	}
	total := HeaderSize + int(h.MessageLength)
	if err := r.fill(total); err != nil {
		return h, nil, midFrame(err)
	}
	frame := r.buf[r.start : r.start+total]
	if binary.LittleEndian.Uint32(frame[20:]) != frameSum(frame) {
		return h, nil, &FrameError{"its checksum does not fit"}
	}
	r.start += total
	return h, frame[HeaderSize:], nil
}

// ReadData fills p with the data of the frame that Next returned last.
func (r *Reader) ReadData(p []byte) error {
	n := copy(p, r.buf[r.start:r.end])
	r.start += n
	_, err := io.ReadFull(r.r, p[n:])
	return midFrame(err)
}

// Buffered reports whether a whole frame's header, at least, has been read ahead.
func (r *Reader) Buffered() bool { return r.end-r.start >= HeaderSize }

func midFrame(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill makes sure that n bytes lie at start.
func (r *Reader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	if r.start+n > len(r.buf) {
		if err := r.shift(n); err != nil {
			return err
		}
	}
	got, err := io.ReadAtLeast(r.r, r.buf[r.end:], n-(r.end-r.start))
	r.end += got
	if err == io.ErrUnexpectedEOF && r.end == r.start {
		return io.EOF
	}
	if err == io.EOF && r.end > r.start {
		return io.ErrUnexpectedEOF
	}
	return err
}

// shift moves unread bytes to the front of a buffer that holds n bytes, and does
// not keep a buffer that one large message needed.
func (r *Reader) shift(n int) error {
	size := max(n, readAhead)
	next := r.buf
	if size != len(r.buf) {
		if r.Resize != nil {
			if err := r.Resize(len(r.buf), size); err != nil {
				return err
			}
		}
		next = make([]byte, size)
	}
	r.end = copy(next, r.buf[r.start:r.end])
	r.buf, r.start = next, 0
	return nil
}

// WriteFrame writes one frame with one system call. Scratch is reused and returned,
// possibly grown. It is for callers that hold the connection's write lock.
func WriteFrame(conn io.Writer, scratch []byte, typ Type, flags uint16, request uint64, m proto.Message, data []byte) ([]byte, error) {
	frame, err := AppendFrame(scratch[:0], typ, flags, request, m, len(data))
	if err != nil {
		return frame, err
	}
	if len(data) == 0 {
		_, err = conn.Write(frame)
		return frame, err
	}
	buffers := net.Buffers{frame, data}
	_, err = buffers.WriteTo(conn)
	return frame, err
}

// RecordCost is the room that a writer must leave free at the end of a segment, in bytes,
// for the record of one commit of so many extents in it. The store's records never
// need more.
func RecordCost(extents int) int64 { return 64 + 32*int64(extents) }
