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
}
