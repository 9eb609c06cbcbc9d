package hostiletest

import (
	"testing"

	"forebay/internal/checksum"
)

func TestCollide(t *testing.T) {
	want := checksum.Sum([]byte("what a file has"))
	for _, n := range []int{8, 9, 100, 5000} {
		content := make([]byte, n)
		collide(content, want)
		if got := checksum.Sum(content); got != want {
			t.Errorf("%d bytes have checksum %x, want %x", n, got, want)
		}
	}
}
