//go:build !race

package tcp

import (
	"testing"

	"forebay/rdma/rdmatest"
)

func TestAllocations(t *testing.T) { rdmatest.Allocations(t, suiteProvider(Options{})) }
