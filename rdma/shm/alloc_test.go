//go:build !race

package shm

import (
	"testing"

	"forebay/rdma/rdmatest"
)

func TestAllocations(t *testing.T) { rdmatest.Allocations(t, provider(Options{})) }
