//go:build !ofi || !cgo

package ofi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"forebay/rdma"
)

// Supported reports whether this program was built with libfabric.
const Supported = false

// errUnsupported is the answer to everything.
var errUnsupported = fmt.Errorf("ofi: built without libfabric (build tag ofi): %w", errors.ErrUnsupported)

// Fabric implements rdma.Fabric in programs built with libfabric. Here nobody can make one.
type Fabric struct{}

var _ rdma.Fabric = (*Fabric)(nil)

// New fails with an error wrapping errors.ErrUnsupported.
func New(Options) (*Fabric, error) { return nil, errUnsupported }

// List fails with an error wrapping errors.ErrUnsupported.
func List() ([]Offer, error) { return nil, errUnsupported }

// Version of libfabric: there is none.
func Version() string { return "" }

// Name implements rdma.Fabric.
func (*Fabric) Name() string { return "ofi" }

// Offer is the way that was chosen: none.
func (*Fabric) Offer() Offer { return Offer{} }

// Limits implements rdma.Fabric.
func (*Fabric) Limits() rdma.Limits { return rdma.Limits{} }

// Register implements rdma.Fabric.
func (*Fabric) Register([]byte, rdma.Access) (rdma.Region, error) { return nil, errUnsupported }

// RegisterAs fails.
func (*Fabric) RegisterAs(rdma.Region) (rdma.Region, error) { return nil, errUnsupported }

// Listen implements rdma.Fabric.
func (*Fabric) Listen(context.Context, string) (rdma.Listener, error) { return nil, errUnsupported }

// Dial implements rdma.Fabric.
func (*Fabric) Dial(context.Context, string) (rdma.Conn, error) { return nil, errUnsupported }

// DialWith fails.
func (*Fabric) DialWith(context.Context, string, Dialer) (rdma.Conn, error) {
	return nil, errUnsupported
}

// Keep fails.
func (*Fabric) Keep([]byte) (io.Closer, error) { return nil, errUnsupported }

// Buffer is registered memory. Here nobody can get one.
type Buffer struct{}

// Buffer fails.
func (*Fabric) Buffer(context.Context) (*Buffer, error) { return nil, errUnsupported }

// Bytes is the memory: none.
func (*Buffer) Bytes() []byte { return nil }

// Release gives the buffer back.
func (*Buffer) Release() {}

// Broken reports whether nothing can be dialled any more.
func (*Fabric) Broken() bool { return true }

// Close implements rdma.Fabric.
func (*Fabric) Close() error { return nil }

// Raw is one end of a connection over libfabric alone. Here nobody can make one.
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
