package kernel

import (
	"io"
	"syscall"
	"testing"
)

func TestRetries(t *testing.T) {
	var r Retries
	second := func(what string, thread uint32, path string, want bool) {
		t.Helper()
		if r.Second(thread, path) != want {
			t.Errorf("%s: second is %v", what, !want)
		}
	}
	second("nothing failed", 1, "a", false)
	r.Failed(1, "a", io.EOF)
	second("another error", 1, "a", false)
	if err := r.Failed(1, "a", syscall.ESTALE); err != syscall.ESTALE {
		t.Error(err)
	}
	second("another thread", 2, "a", false)
	second("the same thread", 1, "a", true)
	second("a third attempt", 1, "a", false)
	r.Failed(1, "a", syscall.ESTALE)
	second("another path", 1, "b", false)
	second("the first path, after that", 1, "a", false)
	for i := range uint32(3 * maxRetries) {
		r.Failed(i, "a", syscall.ESTALE)
	}
	if n := len(r.paths); n > maxRetries {
		t.Errorf("%d threads are kept", n)
	}
}
