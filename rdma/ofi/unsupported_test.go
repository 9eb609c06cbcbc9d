//go:build !ofi || !cgo

package ofi

import (
	"errors"
	"testing"
)

func TestUnsupported(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := List(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if Supported {
		t.Error("it says that it is supported")
	}
}
