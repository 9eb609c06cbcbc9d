package bbd

import (
	"fmt"
	"strings"

	"forebay/bbd/store"
)

// ForeignStatus is memory, or disk, of another node or namespace that the daemon found
// in its folders. It is left as it is.
type ForeignStatus struct {
	Path      string   `json:"path"`
	Tier      string   `json:"tier"`
	Bytes     int64    `json:"bytes"` // that this daemon cannot use
	Held      int64    `json:"held"`  // of them in segments, which may hold files
	Node      string   `json:"node"`
	Namespace string   `json:"namespace"` // its identity
	Buffers   []string `json:"buffers,omitempty"`
	Remedy    string   `json:"remedy"`
}

// foreignStatus describes the regions of other owners.
func (d *Daemon) foreignStatus() (list []ForeignStatus) {
	for _, f := range d.store.Foreign() {
		list = append(list, ForeignStatus{
			Path: f.Path, Tier: f.Tier.String(), Bytes: f.Bytes, Held: f.Held, Node: f.Owner.Node,
			Namespace: fmt.Sprintf("%016x", f.Owner.Namespace), Buffers: f.Buffers, Remedy: d.foreignRemedy(&f),
		})
	}
	return list
}

// foreignRemedy says what to do with a region of another owner.
func (d *Daemon) foreignRemedy(f *store.ForeignRegion) string {
	own := d.store.Owner()
	var how []string
	if f.Owner.Node != own.Node && !own.AnyNode {
		how = append(how, "as node "+f.Owner.Node)
	}
	if f.Owner.Namespace != own.Namespace {
		how = append(how, fmt.Sprintf("with the namespace that it was written with (nats.url, or the nats folder below state_dir), whose identity is %016x", f.Owner.Namespace))
	}
	return "start this daemon " + strings.Join(how, " and ") + " and drain it; or, if nothing of it is wanted, stop the daemon and delete the file"
}

// nameForeign says in the log what of memory is not this daemon's own.
func (d *Daemon) nameForeign() {
	for _, f := range d.foreignStatus() {
		d.log.Error("memory of another node or namespace is left as it is, and cannot be used", "path", f.Path, "tier", f.Tier,
			"bytes", f.Bytes, "held", f.Held, "node", f.Node, "namespace", f.Namespace, "buffers", f.Buffers, "remedy", f.Remedy)
	}
}

// newestBlock returns the largest block of ids that identities in memory name.
func (d *Daemon) newestBlock() (block uint64) {
	for f := range d.store.Files() {
		if id := f.Identity; id != nil {
			block = max(block, uint64(id.File)>>32, uint64(id.Generation)>>32, uint64(id.Dir)>>32)
		}
	}
	return block
}
