package main

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"forebay/bbd"
	"forebay/cmd/bbd/config"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta"
	"forebay/meta/embedded"
	"forebay/meta/gossip"
)

// membership is this daemon's part in gossip, or nil where it is alone.
type membership struct {
	gossip *gossip.Gossip
	host   string // that others reach this node at
	log    *slog.Logger

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// joinCluster begins to search the other daemons. None has to be there yet.
func joinCluster(ctx context.Context, cfg config.Config, keys [][]byte, log *slog.Logger) (*membership, error) {
	if cfg.Cluster.Listen == "" {
		return nil, nil
	}
	o := gossip.Options{
		Node: bb.NodeID(cfg.Name), Listen: cfg.Cluster.Listen, WAN: cfg.Cluster.WAN, Insecure: cfg.Insecure, Logger: log,
	}
	if cfg.Cluster.Join != "" {
		o.Join = []string{cfg.Cluster.Join}
	}
	if cfg.Cluster.Advertise != "" {
		o.Advertise = atHost(cfg.Cluster.Listen, cfg.Cluster.Advertise)
	}
	var err error
	if o.Keys, err = gossipKeys(keys); err != nil {
		return nil, err
	}
	self := gossip.Member{
		Node: o.Node, State: gossip.Starting, MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Server: "bbd " + version,
	}
	g, err := gossip.Start(ctx, o, self)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(g.Addr())
	if err != nil {
		g.Close()
		return nil, bb.Wrap("start", g.Addr(), err)
	}
	return &membership{gossip: g, host: host, log: log, cancel: func() {}}, nil
}

// useKeys has gossip use other keys.
func (m *membership) useKeys(keys [][]byte) error {
	if m == nil {
		return nil
	}
	derived, err := gossipKeys(keys)
	if err != nil {
		return err
	}
	return m.gossip.UseKeys(derived)
}

// gossipKeys derives gossip's keys from the cluster's.
func gossipKeys(keys [][]byte) (derived [][]byte, err error) {
	for _, key := range keys {
		secret, err := gossip.Key(key)
		if err != nil {
			return nil, err
		}
		derived = append(derived, secret)
	}
	return derived, nil
}

// atHost returns the address of a listener as others reach it.
func atHost(listener, host string) string {
	_, port, err := net.SplitHostPort(listener)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// configure sets the daemon's peers.
func (m *membership) configure(c *bbd.Config) {
	if m != nil {
		c.Members = m.gossip
	}
}

// sayEvery is the time between reports of this node's usage to the others.
const sayEvery = time.Second

// follow reports the daemon's state to the others until leave is called.
func (m *membership) follow(d *bbd.Daemon) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.ended.Go(func() {
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			m.say(d.Self())
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

func (m *membership) say(self gossip.Member) {
	for _, address := range []*string{&self.Session, &self.Fabric} {
		if host, _, err := net.SplitHostPort(*address); err == nil && net.ParseIP(host).IsUnspecified() {
			*address = atHost(*address, m.host)
		}
	}
	if err := m.gossip.Update(self); err != nil {
		m.log.Warn("telling the cluster of this daemon", "err", err)
	}
}

// done is closed when the daemon has to leave, since another one has its name.
func (m *membership) done() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.gossip.Done()
}

func (m *membership) failed() error { return m.gossip.Err() }

// leave sends a goodbye.
func (m *membership) leave(ctx context.Context) {
	if m == nil {
		return
	}
	m.cancel()
	m.ended.Wait()
	if err := m.gossip.Leave(ctx); err != nil {
		m.log.Warn("leaving the cluster", "err", err)
	}
}

func (m *membership) close() {
	if m == nil {
		return
	}
	m.cancel()
	m.ended.Wait()
	if err := m.gossip.Close(); err != nil {
		m.log.Warn("leaving the cluster", "err", err)
	}
}

// clusterServer starts the embedded server if this daemon runs one of the cluster's,
// and returns the addresses of all.
func clusterServer(ctx context.Context, cfg config.Config, proofs *secrets, options meta.Options, log *slog.Logger) (*embedded.Server, meta.Options, error) {
	clients, routes, own, err := cfg.NATSServers()
	if err != nil {
		return nil, options, bb.Wrap("start", cfg.NATS.Servers, err)
	}
	if options.ClusterKey = proofs.first(); options.ClusterKey != nil {
		options.ClusterKeys = proofs.keys.Keys
	}
	if options.Replicas == 0 {
		options.Replicas = len(clients)
	}
	for _, address := range clients {
		options.URLs = append(options.URLs, "nats://"+address)
	}
	if own < 0 {
		return nil, options, nil
	}
	o := embedded.Options{
		Dir: natsDir(cfg), Name: cfg.Name, Listen: bound(clients[own]), Advertise: clients[own],
		Key: options.ClusterKey, Keys: options.ClusterKeys, Logger: log,
	}
	if err := syncing(&o, cfg); err != nil {
		return nil, options, err
	}
	if len(clients) > 1 {
		o.Cluster = &embedded.Cluster{Listen: bound(routes[own]), Advertise: routes[own], Routes: routes}
	}
	log.Info("starting a namespace server", "name", o.Name, "servers", strings.Join(clients, ","))
	server, err := embedded.Start(ctx, o)
	if err != nil {
		return nil, options, err
	}
	options.InProcess = server
	return server, options, nil
}

// bound is the address to listen on so that others reach an address: the same one, if it is this
// node's, else all interfaces.
func bound(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); ip != nil {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
			l.Close()
			return address
		}
	}
	return net.JoinHostPort("0.0.0.0", port)
}
