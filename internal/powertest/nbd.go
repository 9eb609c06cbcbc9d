package powertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// The NBD protocol as far as QEMU needs it: the fixed newstyle handshake and simple replies
// (https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md).
const (
	nbdMagic      = 0x4e42444d41474943
	nbdOption     = 0x49484156454f5054
	nbdOptionBack = 0x0003e889045565a9
	nbdRequest    = 0x25609513
	nbdReply      = 0x67446698

	nbdFixed, nbdNoZeroes = 1, 2 // flags of the handshake

	nbdOptAbort, nbdOptGo              = 2, 7
	nbdAck, nbdInfo, nbdErrUnsup       = 1, 3, 1<<31 | 1
	nbdHasFlags, nbdSendFlush          = 1, 4 // flags of the export
	nbdRead, nbdWrite, nbdOff, nbdSync = 0, 1, 2, 3

	nbdMost = 64 << 20 // bytes of one message
)

var order = binary.BigEndian

// gone reports whether an error is that of a machine that was switched off.
func gone(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// serve answers one machine until it is off.
func (d *Drive) serve(conn io.ReadWriter) error {
	if err := d.greet(conn); err != nil {
		return err
	}
	for {
		var r struct {
			Magic       uint32
			Flags, Type uint16
			Cookie      uint64
			Off         int64
			Len         uint32
		}
		if err := binary.Read(conn, order, &r); err != nil {
			return err
		}
		if r.Magic != nbdRequest || r.Len > nbdMost || r.Off < 0 || r.Off+int64(r.Len) > d.size {
			return fmt.Errorf("nbd: request %+v of a disk of %d bytes", r, d.size)
		}
		answer := order.AppendUint64(order.AppendUint32(order.AppendUint32(nil, nbdReply), 0), r.Cookie)
		switch r.Type {
		case nbdRead:
			p := make([]byte, r.Len)
			d.read(p, r.Off)
			answer = append(answer, p...)
		case nbdWrite:
			p := make([]byte, r.Len)
			if _, err := io.ReadFull(conn, p); err != nil {
				return err
			}
			d.write(p, r.Off)
		case nbdSync:
			d.flush()
		case nbdOff:
			return nil
		default:
			return fmt.Errorf("nbd: request %+v, which was not offered", r)
		}
		if _, err := conn.Write(answer); err != nil {
			return err
		}
	}
}

// greet does the handshake.
func (d *Drive) greet(conn io.ReadWriter) error {
	hello := order.AppendUint64(order.AppendUint64(nil, nbdMagic), nbdOption)
	if _, err := conn.Write(order.AppendUint16(hello, nbdFixed|nbdNoZeroes)); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(conn, order, &flags); err != nil {
		return err
	}
	for {
		var o struct {
			Magic       uint64
			Option, Len uint32
		}
		if err := binary.Read(conn, order, &o); err != nil {
			return err
		}
		if o.Magic != nbdOption || o.Len > nbdMost {
			return fmt.Errorf("nbd: option %+v", o)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(o.Len)); err != nil {
			return err
		}
		back := func(kind uint32, p []byte) error {
			m := order.AppendUint32(order.AppendUint64(nil, nbdOptionBack), o.Option)
			m = order.AppendUint32(order.AppendUint32(m, kind), uint32(len(p)))
			_, err := conn.Write(append(m, p...))
			return err
		}
		switch o.Option {
		case nbdOptGo:
			export := order.AppendUint64(make([]byte, 2), uint64(d.size)) // 2: NBD_INFO_EXPORT, 0
			if err := back(nbdInfo, order.AppendUint16(export, nbdHasFlags|nbdSendFlush)); err != nil {
				return err
			}
			return back(nbdAck, nil)
		case nbdOptAbort:
			return errors.Join(back(nbdAck, nil), io.EOF)
		default:
			if err := back(nbdErrUnsup, nil); err != nil {
				return err
			}
		}
	}
}
