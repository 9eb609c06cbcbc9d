package bbd

import (
	"context"

	"forebay/bbd/fabric"
	"forebay/bbd/nodes"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// newNodes makes the service that answers requests about nodes.
func (d *Daemon) newNodes() *nodes.Service {
	o := nodes.Options{Node: d.cfg.Node, Self: d.selfAdvertised, Buffers: d.bufferNames, Buffer: d.forgetter, Log: d.log}
	if d.cluster != nil {
		o.Cluster = d.cluster
	}
	return nodes.New(o)
}

// selfAdvertised returns this daemon, now, with the addresses at which other nodes reach it.
func (d *Daemon) selfAdvertised() gossip.Member {
	m := d.Self()
	m.Session, m.Fabric = fabric.Advertised(m.Session, d.cluster.Addr()), fabric.Advertised(m.Fabric, d.cluster.Addr())
	return m
}

// bufferNames returns the names of all buffers.
func (d *Daemon) bufferNames(ctx context.Context) (names []string, err error) {
	specs, err := d.work.buffers.Specs(ctx)
	for i := range specs {
		names = append(names, specs[i].Name)
	}
	return names, err
}

// forgetter returns the part that removes dead nodes from a buffer's entries.
func (d *Daemon) forgetter(ctx context.Context, name string) (*nodes.Buffer, error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	return nodes.NewBuffer(nodes.BufferOptions{
		Name: b.Name(), Owners: d.owners(), Names: b.Tree(), Replicas: b.Replicas(), Writeback: b.Writeback(),
		Reachable: func(node bb.NodeID) bool { return d.cluster.Reachable(node) }, Lost: b.Recovery().PublishLost,
		Lock: b.Files().Lock, Requeue: b.Recovery().Requeue,
	}), nil
}
