package meta

import (
	"context"
	"errors"

	"forebay/meta/metapb"
)

// identityKey holds the identity of the namespace, which is put there once.
const identityKey = "namespace.id"

// Identity returns what tells this namespace from every other one. It is made when the
// namespace is first used by a release that knows of it, and never changes.
func (m *Meta) Identity(ctx context.Context) (uint64, error) {
	const op = "identity of the namespace"
	for {
		r, err := m.system.get(ctx, identityKey)
		if err != nil {
			return 0, opError(op, "", err)
		}
		if r.live() {
			var made metapb.Counter
			if err := open(identityKey, r.data, &made); err != nil {
				return 0, err
			}
			return made.GetNonce(), nil
		}
		data, err := seal(identityKey, &metapb.Counter{Nonce: random64() | 1})
		if err != nil {
			return 0, err
		}
		// The first daemon has made it: the next look finds it.
		if _, _, err := m.system.create(ctx, identityKey, data, r.seq); err != nil && !errors.Is(err, errConflict) && !isUncertainNow(ctx, err) {
			return 0, opError(op, "", err)
		}
	}
}
