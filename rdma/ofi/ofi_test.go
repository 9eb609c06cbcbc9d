//go:build ofi && cgo

package ofi

import (
	"os"
	"testing"
	"time"

	"forebay/rdma"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/rdmatest"
)

// configurations are the fabrics of the suite. The test of the killed peer starts this binary
// again, which finds its own here.
var configurations = map[string]struct {
	opts  Options
	rules fi.Rules
}{
	"tcp":     {opts: Options{Want: fi.Want{Provider: "tcp", Address: "127.0.0.1"}}},
	"sockets": {opts: Options{Want: fi.Want{Provider: "sockets", Endpoint: fi.Datagram, Address: "127.0.0.1"}}},
	"hardware": {
		opts:  Options{Want: fi.Want{Provider: "tcp", Address: "127.0.0.1"}},
		rules: fi.Rules{HardwareKeys: true, LocalKeys: true, NoDelivery: true},
	},
	"small": {
		opts: Options{
			Want:  fi.Want{Provider: "tcp", Address: "127.0.0.1"},
			Chunk: 64 << 10, Depth: 3, Window: 2, Spin: -1,
		},
	},
	"verbs": {opts: Options{Want: fi.Want{Provider: "verbs"}}},
}

const variable = "FOREBAY_OFI_TEST"

func suiteProvider(name string) rdmatest.Provider {
	c := configurations[name]
	// Operations in flight take their time on an emulated device or a busy machine, and so do
	// pings.
	c.opts.RevokeTimeout, c.opts.PeerTimeout = time.Minute, time.Minute
	return rdmatest.Provider{
		New:  func() (rdma.Fabric, error) { return newFabric(c.opts, c.rules) },
		Addr: func(testing.TB) string { return "127.0.0.1:0" },
	}
}

func TestMain(m *testing.M) { rdmatest.Main(m, suiteProvider(os.Getenv(variable))) }

func suite(t *testing.T, name string) {
	t.Setenv(variable, name)
	rdmatest.Suite(t, suiteProvider(name))
}

func TestConformanceTCP(t *testing.T)           { suite(t, "tcp") }
func TestConformanceDatagrams(t *testing.T)     { suite(t, "sockets") }
func TestConformanceHardwareRules(t *testing.T) { suite(t, "hardware") }
func TestConformanceSmallBounds(t *testing.T)   { suite(t, "small") }
