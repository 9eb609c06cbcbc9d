//go:build ofi && cgo

package bbd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"forebay/bbd"
	"forebay/bbd/fabric"
	"forebay/bbd/status"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma/ofi/fi"
)

// registeringNode is a node that serves over libfabric, after change.
func registeringNode(t *testing.T, change func(*bbd.Config)) (start func() (*node, error), address string) {
	address = freeAddress(t)
	set := func(c *bbd.Config) {
		c.TCP, c.Fabric, c.Keys = address, "127.0.0.1:0", wire.NewKeyring(fabricKey)
		c.OFI = fabric.OFI{Use: fabric.OFIOn, Want: fi.Want{Provider: "tcp", Address: "127.0.0.1"}}
		change(c)
	}
	return func() (n *node, err error) {
		n = startNode(t, func(c *bbd.Config) { c.OFI.Use = "" })
		n.stop()
		n.change = set
		return n, n.tryStart(t.Context())
	}, address
}

// dialFar is a client that comes over the network.
func dialFar(t *testing.T, address string) *client.Client {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, fabricKey, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + address, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func wantRegistered(t *testing.T, n *node, tiers ...bb.Tier) {
	t.Helper()
	var want []bb.RegionID
	for _, tier := range tiers {
		ids := n.daemon.Regions(tier)
		if len(ids) == 0 {
			t.Errorf("no regions of tier %v: this proves nothing", tier)
		}
		want = append(want, ids...)
	}
	slices.Sort(want)
	if got := n.daemon.Registered(); !slices.Equal(got, want) {
		t.Errorf("%d regions are registered, want %d: %v, %v", len(got), len(want), got, want)
	}
}

// TestLibfabricRegistersAtStart: regions are registered before any request. These are the regions
// that a daemon makes, and after a restart those that it finds.
func TestLibfabricRegistersAtStart(t *testing.T) {
	start, _ := registeringNode(t, func(*bbd.Config) {})
	n, err := start()
	if err != nil {
		t.Fatal(err)
	}
	wantRegistered(t, n, bb.TierMemory)
	before := n.daemon.Registered()
	n.stop()
	n.start()
	wantRegistered(t, n, bb.TierMemory)
	if after := n.daemon.Registered(); !slices.Equal(before, after) {
		t.Errorf("other regions after a restart: %v, %v", before, after)
	}
}

// TestLibfabricRegionsMadeLater: regions that are made while the daemon runs are registered too.
// Those on disk are registered only where that does not pin them in memory, and are read all the
// same.
func TestLibfabricRegionsMadeLater(t *testing.T) {
	for name, hardware := range map[string]bool{"software": false, "hardware": true} {
		t.Run(name, func(t *testing.T) {
			start, address := registeringNode(t, func(c *bbd.Config) {
				c.Store.DiskDir, c.Store.DiskBytes = t.TempDir(), 256<<20
				if hardware {
					c.OFI.Faults.Hardware = true
				}
			})
			n, err := start()
			if err != nil {
				t.Fatal(err)
			}
			c := dialFar(t, address)
			if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "spills"}); err != nil {
				t.Fatal(err)
			}
			b := c.Buffer("spills")
			contents := map[string][]byte{}
			for i := range 10 {
				name := fmt.Sprint("f", i)
				contents[name] = random(9<<20 + i)
				write(t, b, name, contents[name])
			}
			if hardware {
				wantRegistered(t, n, bb.TierMemory)
			} else {
				wantRegistered(t, n, bb.TierMemory, bb.TierDisk)
			}
			if len(n.daemon.Regions(bb.TierDisk)) == 0 {
				t.Error("nothing was spilled: this proves nothing")
			}
			for name, content := range contents {
				wantFile(t, b, name, content)
			}
			all := n.daemon.Status().Sessions
			if !slices.ContainsFunc(all, func(s status.Session) bool { return s.Path == "ofi/tcp" }) {
				t.Errorf("nobody came over libfabric: %+v", all)
			}
		})
	}
}

// TestLibfabricRefused: a daemon that may not register its memory reports a remedy. It does not
// start where libfabric is required, and continues over TCP where it was left the choice.
func TestLibfabricRefused(t *testing.T) {
	for name, c := range map[string]struct {
		why  error
		kind bb.Kind
	}{
		"too little locked memory": {syscall.ENOMEM, bb.NoSpace},
		"no right to lock memory":  {syscall.EPERM, bb.Permission},
	} {
		t.Run(name, func(t *testing.T) {
			use, calls := fabric.OFIOn, 0
			start, address := registeringNode(t, func(cfg *bbd.Config) {
				cfg.OFI.Use = use
				cfg.OFI.Faults.Hardware = true
				cfg.OFI.Faults.Refuse = func() error {
					calls++
					if calls%2 == 0 { // the second of two regions
						return c.why
					}
					return nil
				}
			})
			n, err := start()
			var e *bb.Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Op != "register" || !errors.Is(err, c.why) ||
				!strings.Contains(e.Remedy, "ulimit -l") || !strings.Contains(e.Remedy, "fabric.ofi") {
				t.Fatalf("asked for: %v", err)
			}
			use = fabric.OFIAuto
			n.start()
			if got := n.daemon.Registered(); got != nil {
				t.Errorf("left the choice, and registered: %v", got)
			}
			if w := farDial(t, address, 1001).welcome; w.OfiAddress != "" || w.DataAddress == "" {
				t.Errorf("welcome: %v", w)
			}
			wantServed(t, n, address, "tcp")
		})
	}
}

// wantServed checks that a client which comes over the network gets its bytes there and back.
func wantServed(t *testing.T, n *node, address, path string) {
	t.Helper()
	c := dialFar(t, address)
	name := "b" + strings.ReplaceAll(path, "/", "-")
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: name}); err != nil {
		t.Fatal(err)
	}
	content := random(3 << 20)
	write(t, c.Buffer(name), "f", content)
	wantFile(t, c.Buffer(name), "f", content)
	all := n.daemon.Status().Sessions
	if !slices.ContainsFunc(all, func(s status.Session) bool { return s.Path == path }) {
		t.Errorf("nobody came by %s: %+v", path, all)
	}
}

// TestLibfabricRefusedLater: if a region made while the daemon runs cannot be registered, all
// sessions continue over TCP.
func TestLibfabricRefusedLater(t *testing.T) {
	var refuse atomic.Bool
	start, address := registeringNode(t, func(c *bbd.Config) {
		c.Store.DiskDir, c.Store.DiskBytes = t.TempDir(), 256<<20
		c.OFI.Faults.Refuse = func() error {
			if refuse.Load() {
				return syscall.ENOMEM
			}
			return nil
		}
	})
	n, err := start()
	if err != nil {
		t.Fatal(err)
	}
	wantServed(t, n, address, "ofi/tcp")
	refuse.Store(true)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "spills"})
	for i := range 10 { // more than memory holds
		write(t, b, fmt.Sprint("f", i), random(9<<20))
	}
	eventually(t, "transfers go over TCP", func() bool { return farDial(t, address, 1001).welcome.OfiAddress == "" })
	wantServed(t, n, address, "tcp")
}
