//go:build !ofi || !cgo

package ofi

import (
	"context"
	"errors"
	"fmt"
	"io"

	"forebay/rdma"
	"forebay/rdma/ofi/fi"
)

// errUnsupported is the answer to everything.
var errUnsupported = fmt.Errorf("ofi: built without libfabric (build tag ofi): %w", errors.ErrUnsupported)

// Fabric implements rdma.Fabric in programs built with libfabric. Here none can be made.
type Fabric struct{}

var _ rdma.Fabric = (*Fabric)(nil)

// New fails with an error wrapping errors.ErrUnsupported.
func New(Options) (*Fabric, error) { return nil, errUnsupported }

// Name implements rdma.Fabric.
func (*Fabric) Name() string { return "ofi" }

// Offer is the way that was chosen, none.
func (*Fabric) Offer() fi.Offer { return fi.Offer{} }

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

// Buffer is registered memory. Here none can be had.
type Buffer struct{}

// Buffer fails.
func (*Fabric) Buffer(context.Context) (*Buffer, error) { return nil, errUnsupported }

// Bytes is the memory, none.
func (*Buffer) Bytes() []byte { return nil }

// Release frees the buffer.
func (*Buffer) Release() {}

// Broken reports whether nothing can be dialled any more.
func (*Fabric) Broken() bool { return true }

// Close implements rdma.Fabric.
func (*Fabric) Close() error { return nil }
