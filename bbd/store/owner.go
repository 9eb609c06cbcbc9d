package store

import (
	"slices"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// leaveForeign returns those regions that are this store's own. The others are left as
// they are, except for empty ones, which a daemon that was started once by mistake leaves.
func (s *Store) leaveForeign(found []candidate) []candidate {
	var own []candidate
	for i := range found {
		c := &found[i]
		if c.Err != nil || s.owner.Owns(c.Header.Owner) {
			own = append(own, *c)
			continue
		}
		f := ForeignRegion{Path: c.Path, Tier: c.Tier, Bytes: c.Header.Size, Owner: c.Header.Owner}
		held, buffers, empty, err := c.Holds()
		f.Held, f.Buffers = held, buffers
		if err == nil && empty {
			if err = regionfile.Remove(c.Path); err == nil {
				s.log.Info("deleted an empty region of another owner", "path", c.Path, "node", f.Owner.Node)
				continue
			}
		}
		if err != nil {
			s.log.Error("look at, or delete, a region of another owner", "path", c.Path, "error", err)
		}
		s.found.foreign = append(s.found.foreign, f)
	}
	return own
}

// Owner returns whose regions are this store's own.
func (s *Store) Owner() format.Owner { return s.owner }

// Foreign lists the regions of other owners.
func (s *Store) Foreign() []ForeignRegion { return slices.Clone(s.found.foreign) }

// foreignBytes is the space of other owners' regions in a tier.
func (s *Store) foreignBytes(tier bb.Tier) (n int64) {
	for i := range s.found.foreign {
		if s.found.foreign[i].Tier == tier {
			n += s.found.foreign[i].Bytes
		}
	}
	return n
}

// takeOver writes the header of a region that is adopted again where it differs from this store's,
// since it was damaged, is of an older version, or names another owner.
func (s *Store) takeOver(r *region, c *candidate) error {
	if s.owner.Namespace != 0 {
		r.owner = format.Owner{Namespace: s.owner.Namespace, Node: s.owner.Node}
	}
	same := c.Header.Version == format.Version && c.Header.Owner == r.owner
	if same && !c.Mended && c.Header.Instance == s.instance {
		return nil
	}
	r.writeHeader(s.instance)
	if same {
		return nil
	}
	return r.Sync(0, Unit)
}

// allForeign is the error of a lease where regions of other owners leave no memory. No waiting
// would help. The caller holds mu.
func (s *Store) allForeign() error {
	if len(s.found.foreign) == 0 || s.mu.replacing > 0 {
		return nil
	}
	for _, r := range s.mu.regions {
		if r.Tier == bb.TierMemory && !r.Log {
			return nil
		}
	}
	return bb.E(bb.NoSpace, "lease", s.memDir, "all memory of this node is in regions of another node or namespace").
		WithRemedy("see bbctl doctor")
}
