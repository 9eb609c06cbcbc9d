//go:build ofi && cgo

package ofi

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzFrames: what a peer sends is refused, or means what it says.
func FuzzFrames(f *testing.F) {
	h := hello{protocol: 7, address: []byte("here")}
	f.Add(h.encode())
	f.Add((&frame{kind: kindOpen, request: 5, key: keyOf(9)}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil {
			again, err := readHello(bytes.NewReader(h.encode()))
			if err != nil || !bytes.Equal(again.address, h.address) || again.token != h.token || again.protocol != h.protocol {
				t.Errorf("hello %+v came back as %+v, %v", h, again, err)
			}
		}
		if len(b) == frameSize {
			if got, err := decodeFrame(b); err == nil {
				if again, err := decodeFrame(got.append(nil)); err != nil || again != got {
					t.Errorf("frame %+v came back as %+v, %v", got, again, err)
				}
			}
		}
	})
}

// TestHelloFitsOlderReleases: releases with messages refuse a hello whose limits of messages, at 16 and
// 20, are not within 1 and 64 KiB, and 1 and 128; what they say there themselves is ignored.
func TestHelloFitsOlderReleases(t *testing.T) {
	h := hello{protocol: 7, address: []byte("here")}
	b := h.encode()
	for _, at := range []int{16, 20} {
		if n := binary.LittleEndian.Uint32(b[at:]); n < 1 || n > 128 {
			t.Errorf("the limit at %d is %d", at, n)
		}
	}
	binary.LittleEndian.PutUint32(b[16:], 4<<10)
	binary.LittleEndian.PutUint32(b[20:], 16)
	got, err := readHello(bytes.NewReader(b))
	if err != nil || got.protocol != h.protocol || !bytes.Equal(got.address, h.address) {
		t.Errorf("the hello of an older release is %+v, %v", got, err)
	}
}
