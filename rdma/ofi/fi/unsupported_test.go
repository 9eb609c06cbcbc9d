//go:build !ofi || !cgo

package fi

import (
	"errors"
	"testing"
)

func TestUnsupported(t *testing.T) {
	if _, err := List(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := OpenRaw("tcp", "", 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if Supported || Version() != "" {
		t.Error("it says that it is supported")
	}
}
