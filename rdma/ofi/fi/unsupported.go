//go:build !ofi || !cgo

package fi

import (
	"errors"
	"fmt"
	"time"
)

// Supported reports whether this program was built with libfabric.
const Supported = false

// errUnsupported is the answer to everything.
var errUnsupported = fmt.Errorf("built without libfabric (build tag ofi): %w", errors.ErrUnsupported)

// List fails with an error wrapping errors.ErrUnsupported.
func List() ([]Offer, error) { return nil, errUnsupported }

// Version of libfabric: there is none.
func Version() string { return "" }

// Raw is one end of a connection over libfabric alone. Here none can be made.
type Raw struct{}

// OpenRaw fails with an error wrapping errors.ErrUnsupported.
func OpenRaw(string, string, int64) (*Raw, error) { return nil, errUnsupported }

// Listen fails.
func (*Raw) Listen() (string, error) { return "", errUnsupported }

// Serve fails.
func (*Raw) Serve() error { return errUnsupported }

// Connect fails.
func (*Raw) Connect(string) error { return errUnsupported }

// Run fails.
func (*Raw) Run(RawOp, int, int, int64) (time.Duration, error) { return 0, errUnsupported }

// Close does nothing.
func (*Raw) Close() {}
