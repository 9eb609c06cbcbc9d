package config

import (
	"net"
	"strconv"
)

// FabricOff is the value of listen.fabric that asks for none.
const FabricOff = "off"

// FabricAddress returns where to listen for one-sided transfers, "" for nowhere, and
// whether another port will do where that one is taken: nobody has asked for it.
func (l *Listen) FabricAddress() (address string, anyPort bool) {
	switch {
	case l.Fabric == FabricOff || l.TCP == "":
		return "", false
	case l.Fabric != "":
		return l.Fabric, false
	}
	host, port, err := net.SplitHostPort(l.TCP)
	if err != nil {
		return "", false // Validate has said so
	}
	next := 0
	if n, err := strconv.Atoi(port); err == nil && n > 0 && n < 65535 {
		next = n + 1
	}
	return net.JoinHostPort(host, strconv.Itoa(next)), true
}
