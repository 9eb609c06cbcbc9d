package tcp

import (
	"encoding/binary"
	"testing"
)

// TestHelloFitsOlderReleases: releases with messages refuse a hello whose limits of messages, at 24
// and 28, are not within 1 and 1 MiB, and 1 and 4096. Their own values there are ignored.
func TestHelloFitsOlderReleases(t *testing.T) {
	h := hello{streams: 2, chunk: 1 << 20, window: 128}
	b := h.encode()
	for _, at := range []int{24, 28} {
		if n := binary.BigEndian.Uint32(b[at:]); n < 1 || n > 4096 {
			t.Errorf("the limit at %d is %d", at, n)
		}
	}
	binary.BigEndian.PutUint32(b[24:], 16<<10)
	binary.BigEndian.PutUint32(b[28:], 32)
	if got, err := decodeHello(b); err != nil || got != h {
		t.Errorf("the hello of an older release is %+v, %v", got, err)
	}
}
