package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Cluster is the way in which daemons find each other. There is none if Listen is empty.
type Cluster struct {
	Listen    string // host:port of gossip, UDP and TCP
	Advertise string // host that others reach this node at; empty: the one of Listen, or of the interface that leads out
	Join      string // where a member may be: see gossip
	WAN       bool   // timings for links with delays of tens of milliseconds
}

// The ports of the embedded servers of a cluster.
const (
	natsPort  = 4222
	routeStep = 2000 // from the port for clients to that for the other servers
)

// NATSServers returns where the embedded servers of the cluster listen, for clients and for each
// other, and which of them this daemon runs, or -1 if it runs none.
func (c *Config) NATSServers() (clients, routes []string, own int, err error) {
	own = -1
	for i, server := range strings.Split(c.NATS.Servers, ",") {
		host, port := strings.TrimSpace(server), natsPort
		if h, p, err := net.SplitHostPort(host); err == nil {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil || n == 0 || n > 65535-routeStep {
				return nil, nil, -1, fmt.Errorf("%s: %s is not a port below %d", host, p, 65535-routeStep)
			}
			host, port = h, int(n)
		}
		if host == "" {
			return nil, nil, -1, fmt.Errorf("an empty name of a server")
		}
		clients = append(clients, net.JoinHostPort(host, strconv.Itoa(port)))
		routes = append(routes, net.JoinHostPort(host, strconv.Itoa(port+routeStep)))
		if own < 0 && c.isSelf(host) {
			own = i
		}
	}
	return clients, routes, own, nil
}

// isSelf reports whether a host is this node: by its name, by its advertised address, or, without
// one, by an address of one of its interfaces.
func (c *Config) isSelf(host string) bool {
	if host == c.Name || host == c.Cluster.Advertise {
		return true
	}
	if c.Cluster.Advertise != "" {
		return false
	}
	addresses, err := net.LookupHost(host)
	if err != nil {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range own {
		ip, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		for _, there := range addresses {
			if there == ip.IP.String() {
				return true
			}
		}
	}
	return false
}

func (c *Config) validateCluster(p *Problems) {
	k := &c.Cluster
	c.address(p, "cluster.listen", k.Listen, withKey)
	p.check(k.Listen == "" || c.Listen.TCP != "", "listen.tcp", "", "the daemons of a cluster talk to each other there", "such as 0.0.0.0:7481")
	p.check(k.Listen != "" || k.Join == "", "cluster.join", k.Join, "this daemon takes no part in a cluster", "set cluster.listen")
	p.check(k.Listen == "" || c.NATS.URL != "" || c.NATS.Servers != "", "nats.servers", "", "the daemons of a cluster share a namespace",
		"name the daemons that run its servers, or set nats.url")
	n := len(strings.Split(c.NATS.Servers, ","))
	switch {
	case c.NATS.Servers == "":
	case n != 1 && n != 3 && n != 5:
		p.add("nats.servers", c.NATS.Servers, fmt.Sprintf("a namespace of %d servers agrees no better than one of %d", n, n-1), "1, 3 or 5 of them")
	case c.NATS.URL != "" || c.NATS.Embedded.Listen != "":
		p.add("nats.servers", c.NATS.Servers, "nats.url or nats.embedded.listen is set too", "set one of them")
	case c.KeyFile == "":
		clients, _, _, err := c.NATSServers()
		p.check(err != nil || !slices.ContainsFunc(clients, beyondLoopback), "nats.servers", c.NATS.Servers,
			"servers beyond loopback require the cluster key", "set key_file")
	}
	p.check(c.NATS.Replicas == 0 || c.NATS.Replicas == 1 || c.NATS.Replicas == 3 || c.NATS.Replicas == 5, "nats.replicas", c.NATS.Replicas,
		"that many copies are not kept", "1, 3 or 5; 0 for as many as there are servers")
}
