package gossip

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"slices"

	"github.com/hashicorp/memberlist"

	"forebay/internal/bb"
)

// Key derives gossip's key (AES-256) from a cluster key with HKDF (RFC 5869), so
// that the discovery of one derived key is of no use for the others.
func Key(cluster []byte) ([]byte, error) {
	if len(cluster) < 16 {
		return nil, bb.E(bb.Invalid, "gossip", "", "the cluster key has fewer than 16 bytes").WithRemedy("make one with bbctl cluster init")
	}
	return hkdf.Key(sha256.New, cluster, nil, "forebay gossip 1", 32)
}

// newKeyring returns nil for no keys.
func newKeyring(keys [][]byte) (*memberlist.Keyring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	return memberlist.NewKeyring(keys, keys[0])
}

// checkKeys never names a key.
func checkKeys(keys [][]byte) error {
	for _, k := range keys {
		if memberlist.ValidateKey(k) != nil {
			return bb.E(bb.Invalid, "gossip", "", "a key has neither 16, 24 nor 32 bytes").WithRemedy("derive it from the cluster key")
		}
	}
	return nil
}

// UseKeys replaces the keys. The first encrypts, all decrypt. To change the key of a running
// cluster, call it at every member with (old, new), then (new, old), then (new). A cluster without
// keys cannot change to keys while it runs, nor back.
func (g *Gossip) UseKeys(keys [][]byte) error {
	if g.keyring == nil || len(keys) == 0 {
		return bb.E(bb.Unsupported, "gossip", string(g.options.Node), "encryption cannot be switched on or off while the cluster runs").
			WithRemedy("restart all daemons")
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	return install(g.keyring, keys)
}

// install makes keys the ring's keys.
func install(ring *memberlist.Keyring, keys [][]byte) error {
	for _, k := range keys {
		if err := ring.AddKey(slices.Clone(k)); err != nil {
			return err
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return err
	}
	wanted := func(k []byte) bool {
		return slices.ContainsFunc(keys, func(w []byte) bool { return bytes.Equal(w, k) })
	}
	now := slices.Clone(ring.GetKeys())
	first := slices.IndexFunc(now, func(k []byte) bool { return !wanted(k) })
	if first < 0 {
		return nil
	}
	// RemoveKey shifts, in place, an array that is being read to decrypt. Only the removal of the
	// last key shifts nothing. So all from the first unwanted one on are removed from behind, and
	// the remaining ones are added again.
	for _, k := range slices.Backward(now[first:]) {
		if err := ring.RemoveKey(k); err != nil {
			return err
		}
	}
	for _, k := range now[first:] {
		if wanted(k) {
			if err := ring.AddKey(k); err != nil {
				return err
			}
		}
	}
	return nil
}
