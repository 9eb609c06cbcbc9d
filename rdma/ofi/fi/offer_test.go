package fi

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"forebay/rdma"
)

// Offers of fi_getinfo on machines of several kinds, cut to the relevant fields.
var (
	lo     = Offer{Provider: "tcp", Domain: "lo", Fabric: "127.0.0.1/32", Endpoint: Message, Address: "127.0.0.1", Up: true, Delivery: true}
	eth    = Offer{Provider: "tcp", Domain: "eth0", Fabric: "10.0.0.0/24", Endpoint: Message, Address: "10.0.0.7", Up: true, Delivery: true}
	eth6   = Offer{Provider: "tcp", Domain: "eth0", Fabric: "fe80::/64", Endpoint: Message, Address: "fe80::7", Up: true, Delivery: true}
	rxm    = Offer{Provider: "tcp;ofi_rxm", Domain: "eth0", Fabric: "10.0.0.0/24", Endpoint: Datagram, Address: "10.0.0.7", Up: true}
	netRDM = Offer{Provider: "net", Domain: "eth0", Fabric: "10.0.0.0/24", Endpoint: Datagram, Address: "10.0.0.7", Up: true}
	rxd    = Offer{Provider: "udp;ofi_rxd", Domain: "eth0", Fabric: "10.0.0.0/24", Endpoint: Datagram, Address: "10.0.0.7", Up: true}
	own    = Offer{Provider: "shm", Domain: "shm", Fabric: "shm", Endpoint: Datagram, Up: true}
	ib0    = Offer{Provider: "verbs", Domain: "mlx5_0", Fabric: "IB-0xfe80", Endpoint: Message, Address: "10.1.0.7", Device: "mlx5", Up: true, Speed: 100e9}
	ib1    = Offer{Provider: "verbs", Domain: "mlx5_1", Fabric: "IB-0xfe80", Endpoint: Message, Address: "10.2.0.7", Device: "mlx5", Up: true, Speed: 200e9}
	ibDown = Offer{Provider: "verbs", Domain: "mlx5_2", Fabric: "IB-0xfe80", Endpoint: Message, Address: "10.3.0.7", Device: "mlx5", Speed: 400e9}
	ibRXM  = Offer{Provider: "verbs;ofi_rxm", Domain: "mlx5_0", Fabric: "IB-0xfe80", Endpoint: Datagram, Address: "10.1.0.7", Device: "mlx5", Up: true, Speed: 100e9}
	rxe    = Offer{Provider: "verbs", Domain: "rxe0", Fabric: "IB-0xfe80", Endpoint: Message, Address: "10.0.2.15", Up: true}
	efa    = Offer{Provider: "efa", Domain: "rdmap0s6-rdm", Fabric: "efa", Endpoint: Datagram, Device: "efa", Up: true, Speed: 100e9}
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name   string
		offers []Offer
		want   Want
		chosen int
	}{
		{"nothing", nil, Want{}, -1},
		{"only this machine", []Offer{lo}, Want{}, 0},
		{"plain network", []Offer{rxm, netRDM, lo, eth6, eth, rxd}, Want{}, 4},
		{"datagrams where nothing else is", []Offer{rxd, rxm, efa, own}, Want{}, 2},
		{"not what is broken", []Offer{rxm, ibRXM, netRDM}, Want{}, -1},
		{"not even when it is named", []Offer{rxm}, Want{Provider: "tcp;ofi_rxm"}, -1},
		{"nothing fit", []Offer{rxd, own}, Want{}, -1},
		{"unless named", []Offer{rxm, rxd, own}, Want{Provider: "udp;ofi_rxd"}, 1},
		{"verbs before all", []Offer{eth, rxm, ibRXM, ib0}, Want{}, 3},
		{"the faster link", []Offer{ib0, ib1}, Want{}, 1},
		{"not one that is down", []Offer{ibDown, eth, ib0}, Want{}, 2},
		{"rather software than a link that is down", []Offer{ibDown, eth}, Want{}, 1},
		{"soft RoCE counts as hardware", []Offer{eth, rxe}, Want{}, 1},
		{"datagram hardware before message software", []Offer{eth, efa, rxm}, Want{}, 1},
		{"a domain", []Offer{ib0, ib1}, Want{Domain: "mlx5_0"}, 0},
		{"an address", []Offer{ib0, ib1, eth}, Want{Address: "10.0.0.7"}, 2},
		{"a prefix", []Offer{eth, ib1, ib0}, Want{Address: "10.1.0.0/16"}, 2},
		{"loopback by address", []Offer{eth, lo, ib0}, Want{Address: "127.0.0.0/8"}, 1},
		{"a network", []Offer{ib1, eth, lo}, Want{Network: "10.0.0.0/24"}, 1},
		{"an endpoint", []Offer{eth, efa, rxm}, Want{Endpoint: Datagram}, 1},
		{"a provider that is not there", []Offer{eth, rxm}, Want{Provider: "verbs"}, -1},
		{"an address on a provider without", []Offer{efa}, Want{Address: "10.0.0.7"}, -1},
	} {
		got, verdicts := Choose(c.offers, c.want)
		if got != c.chosen {
			t.Errorf("%s: chose %d, want %d: %v", c.name, got, c.chosen, verdicts)
		}
		for i, v := range verdicts {
			if v.Chosen != (i == got) || v.Why == "" {
				t.Errorf("%s: verdict %d is %+v", c.name, i, v)
			}
		}
	}
}

// TestChooseWhatTheOrderOfOffersIs: which offer wins is a matter of the offers alone.
func TestChooseWhatTheOrderOfOffersIs(t *testing.T) {
	all := []Offer{lo, eth, eth6, rxm, netRDM, rxd, own, ib0, ib1, ibDown, ibRXM, rxe, efa}
	for range 200 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if i, _ := Choose(all, Want{}); all[i].Domain != "mlx5_1" {
			t.Fatalf("chose %+v", all[i])
		}
	}
}

func TestChooseSaysWhy(t *testing.T) {
	_, verdicts := Choose([]Offer{eth, ib0, ib1, rxd, ibDown}, Want{})
	for i, want := range []string{"software", "slower", "a read behind each write", "tests of libfabric", "down"} {
		if !strings.Contains(verdicts[i].Why, want) {
			t.Errorf("offer %d: %q does not say %q", i, verdicts[i].Why, want)
		}
	}
}

func TestWantValidate(t *testing.T) {
	for _, bad := range []Want{{Endpoint: "rdm"}, {Address: "eth0"}, {Address: "10.0.0.0/99"}} {
		if err := bad.Validate(); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := (Want{Address: "fd00::/8", Endpoint: Datagram}).Validate(); err != nil {
		t.Error(err)
	}
}
