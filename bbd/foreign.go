package bbd

import "forebay/bbd/status"

// nameForeign logs the parts of memory that are not this daemon's own.
func (d *Daemon) nameForeign() {
	for _, f := range status.OfForeign(d.store.Foreign(), d.store.Owner()) {
		d.log.Error("memory of another node or namespace is left as it is, and cannot be used", "path", f.Path, "tier", f.Tier,
			"bytes", f.Bytes, "held", f.Held, "node", f.Node, "namespace", f.Namespace, "buffers", f.Buffers, "remedy", f.Remedy)
	}
}
