package config

import (
	"net"
	"strconv"
)

// FabricOff is the value of listen.fabric for no fabric.
const FabricOff = "off"

// FabricAddress returns the address of one-sided transfers, "" for none, and whether another port
// will do where that one is in use, since it was not set by the operator.
func (l *Listen) FabricAddress() (address string, anyPort bool) {
	switch {
	case l.Fabric == FabricOff || l.TCP == "":
		return "", false
	case l.Fabric != "":
		return l.Fabric, false
	}
	host, port, err := net.SplitHostPort(l.TCP)
	if err != nil {
		return "", false // Validate has reported it
	}
	next := 0
	if n, err := strconv.Atoi(port); err == nil && n > 0 && n < 65535 {
		next = n + 1
	}
	return net.JoinHostPort(host, strconv.Itoa(next)), true
}
