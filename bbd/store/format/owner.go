package format

// Owner is the owner of a region's bytes: one node, in one namespace.
type Owner struct {
	Namespace uint64 // the identity of the namespace, which is that of a cluster, too; 0: unknown
	Node      string
	AnyNode   bool // of this store; the node's name does not matter, since no other node uses the namespace
}

// Owns reports whether a region is this owner's own. One without an owner is.
func (o *Owner) Owns(region Owner) bool {
	if o.Namespace == 0 || region.Namespace == 0 {
		return true
	}
	return region.Namespace == o.Namespace && (o.AnyNode || region.Node == o.Node[:min(len(o.Node), ownerMax)])
}
