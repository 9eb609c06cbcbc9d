package tcp

import (
	"testing"
	"time"

	"forebay/rdma"
	"forebay/rdma/rdmatest"
)

func suiteProvider(opts Options) rdmatest.Provider {
	// Operations in flight take their time on a busy machine, and so do pings.
	opts.RevokeTimeout, opts.PeerTimeout = time.Minute, time.Minute
	return rdmatest.Provider{
		New:  func() (rdma.Fabric, error) { return New(opts) },
		Addr: func(testing.TB) string { return "127.0.0.1:0" },
	}
}

func TestMain(m *testing.M) { rdmatest.Main(m, suiteProvider(Options{})) }

func TestConformance(t *testing.T) { rdmatest.Suite(t, suiteProvider(Options{})) }

// TestConformanceWithSmallBounds makes everything wait for everything.
func TestConformanceWithSmallBounds(t *testing.T) {
	rdmatest.SuiteInProcess(t, suiteProvider(Options{
		Streams: 3, Chunk: 64 << 10, Depth: 3, Window: 1,
	}))
}
