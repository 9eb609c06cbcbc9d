// Package porttest finds ports for the servers of tests. It must never depend on the server.
package porttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// The ports that are handed out lie below those that Linux gives to connections (ip(7),
// ip_local_port_range: from 32768). So a server that is started again finds its port free, since no
// connection of another test can have got it meanwhile.
const (
	first = 15_000
	end   = 32_768
	tries = 100
)

// Free returns host:port of a port on which no server listens now.
func Free(host string) (string, error) {
	for range tries {
		address := net.JoinHostPort(host, strconv.Itoa(first+rand.IntN(end-first)))
		l, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return address, l.Close()
	}
	return "", fmt.Errorf("none of %d ports of %s is free", tries, host)
}
