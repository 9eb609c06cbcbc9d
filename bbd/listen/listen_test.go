package listen

import (
	"net"
	"strings"
	"testing"

	"forebay/internal/bb"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about   string
		a       Addresses
		refused string // the address that the error names; "": none
	}{
		{"nothing", Addresses{}, ""},
		{"TCP without a guard", Addresses{TCP: "10.0.0.1:7"}, "10.0.0.1:7"},
		{"TCP on loopback, which all users of the node reach", Addresses{TCP: "127.0.0.1:7"}, "127.0.0.1:7"},
		{"TCP, guarded", Addresses{TCP: "10.0.0.1:7", Guarded: true}, ""},
		{"TCP, insecure", Addresses{TCP: "10.0.0.1:7", Insecure: true}, ""},
		{"transfers on loopback", Addresses{Transfers: []string{"127.0.0.1:0", "[::1]:0", "localhost:9"}}, ""},
		{"transfers on all addresses", Addresses{Transfers: []string{"0.0.0.0:0"}}, "0.0.0.0:0"},
		{"transfers without a host, on all addresses", Addresses{Transfers: []string{":7"}}, ":7"},
		{"transfers on all addresses of IPv6", Addresses{Transfers: []string{"[::]:7"}}, "[::]:7"},
		{"a name that begins as loopback's", Addresses{Transfers: []string{"localhost.example:7"}}, "localhost.example:7"},
		{"no address", Addresses{Transfers: []string{"127.0.0.1"}}, "127.0.0.1"},
		{"the second of two", Addresses{Transfers: []string{"127.0.0.1:0", "10.0.0.1:7"}}, "10.0.0.1:7"},
		{"only the second of two", Addresses{Transfers: []string{"", "10.0.0.1:7"}}, "10.0.0.1:7"},
		{"transfers, guarded", Addresses{Transfers: []string{"10.0.0.1:7"}, Guarded: true}, ""},
		{"transfers, insecure", Addresses{Transfers: []string{"10.0.0.1:7"}, Insecure: true}, ""},
	} {
		err := Check(c.a)
		if (err == nil) != (c.refused == "") || err != nil && (bb.KindOf(err) != bb.Invalid || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want a refusal of %q", c.about, err, c.refused)
		}
	}
}

func TestTCP(t *testing.T) {
	t.Parallel()
	l, at, err := TCP(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, port, err := net.SplitHostPort(at); err != nil || port == "0" || at != l.Addr().String() {
		t.Errorf("at %q: %v", at, err)
	}
	if _, _, err := TCP(t.Context(), at, nil); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("an address that is taken: %v", err)
	}
}
