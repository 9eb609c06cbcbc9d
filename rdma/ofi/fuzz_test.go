//go:build ofi && cgo

package ofi

import (
	"bytes"
	"testing"
)

// FuzzFrames: what a peer sends is refused, or means what it says.
func FuzzFrames(f *testing.F) {
	h := hello{protocol: 7, maxMessage: 100, messages: 3, address: []byte("here")}
	f.Add(h.encode())
	f.Add((&frame{kind: kindOpen, request: 5, key: keyOf(9)}).append(nil))
	message := make([]byte, messageHeader+3)
	putHeader(message, 42, messagePayload, 2)
	f.Add(message)
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil {
			again, err := readHello(bytes.NewReader(h.encode()))
			if err != nil || !bytes.Equal(again.address, h.address) || again.token != h.token || again.maxMessage != h.maxMessage {
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
		payload, carries, credits, ours, err := parseMessage(b, 42)
		if ours && err == nil && (len(payload) != len(b)-messageHeader || credits < 0 || credits > maxMessages) {
			t.Errorf("message of %d bytes: %d, %v, %d credits", len(b), len(payload), carries, credits)
		}
	})
}
