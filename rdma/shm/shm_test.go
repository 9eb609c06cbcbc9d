package shm

import (
	"path/filepath"
	"testing"

	"forebay/rdma"
	"forebay/rdma/rdmatest"
)

func provider(opts Options) rdmatest.Provider {
	return rdmatest.Provider{
		New:  func() (rdma.Fabric, error) { return New(opts) },
		Addr: func(t testing.TB) string { return filepath.Join(t.TempDir(), "s") },
	}
}

func TestMain(m *testing.M) { rdmatest.Main(m, provider(Options{})) }

func TestConformance(t *testing.T) { rdmatest.Suite(t, provider(Options{})) }
