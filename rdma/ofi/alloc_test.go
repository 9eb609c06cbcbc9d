//go:build ofi && cgo && !race

package ofi

import (
	"testing"

	"forebay/rdma/rdmatest"
)

func TestAllocations(t *testing.T)              { rdmatest.Allocations(t, suiteProvider("tcp")) }
func TestAllocationsHardwareRules(t *testing.T) { rdmatest.Allocations(t, suiteProvider("hardware")) }
