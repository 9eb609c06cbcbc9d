package porttest

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// A port is free, and no connection gets it.
func TestFree(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	lowest, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		address, err := Free("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if port := l.Addr().(*net.TCPAddr).Port; port < first || port >= min(end, lowest) {
			t.Errorf("port %d may be a connection's, from %d on", port, lowest)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if address, err := Free("192.0.2.1"); err == nil { // of no machine (RFC 5737)
		t.Errorf("%s is free", address)
	}
}
