package lifeline

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzFrames: each frame of a peer is refused, or decodes to its fields.
func FuzzFrames(f *testing.F) {
	h := Hello{Protocol: 7, Address: []byte("here")}
	f.Add(h.Encode())
	open := ForRegion(KindOpen, 9)
	f.Add(open.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ReadHello(bytes.NewReader(b)); err == nil {
			again, err := ReadHello(bytes.NewReader(h.Encode()))
			if err != nil || !bytes.Equal(again.Address, h.Address) || again.Token != h.Token || again.Protocol != h.Protocol {
				t.Errorf("hello %+v came back as %+v, %v", h, again, err)
			}
		}
		if len(b) == frameSize {
			if got, err := decodeFrame(b); err == nil {
				if again, err := decodeFrame(got.Append(nil)); err != nil || again != got {
					t.Errorf("frame %+v came back as %+v, %v", got, again, err)
				}
			}
		}
	})
}

// TestHelloFitsOlderReleases: releases with messages refuse a hello whose limits of messages, at 16 and
// 20, are not within 1 and 64 KiB, and 1 and 128. Their own values there are ignored.
func TestHelloFitsOlderReleases(t *testing.T) {
	h := Hello{Protocol: 7, Address: []byte("here")}
	b := h.Encode()
	for _, at := range []int{16, 20} {
		if n := binary.LittleEndian.Uint32(b[at:]); n < 1 || n > 128 {
			t.Errorf("the limit at %d is %d", at, n)
		}
	}
	binary.LittleEndian.PutUint32(b[16:], 4<<10)
	binary.LittleEndian.PutUint32(b[20:], 16)
	got, err := ReadHello(bytes.NewReader(b))
	if err != nil || got.Protocol != h.Protocol || !bytes.Equal(got.Address, h.Address) {
		t.Errorf("the hello of an older release is %+v, %v", got, err)
	}
}
