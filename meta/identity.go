package meta

import (
	"context"
	"errors"

	"forebay/meta/kv"
	"forebay/meta/metapb"
)

// identityKey holds the identity of the namespace, which is put there once.
const identityKey = "namespace.id"

// Identity returns the id that distinguishes this namespace from every other one. It is made when the
// namespace is first used by a release with identities, and never changes.
func (m *Meta) Identity(ctx context.Context) (uint64, error) {
	const op = "identity of the namespace"
	for {
		r, err := m.system.Get(ctx, identityKey)
		if err != nil {
			return 0, kv.Wrap(op, "", err)
		}
		if r.Live() {
			var made metapb.Counter
			if err := kv.Open(identityKey, r.Data, &made); err != nil {
				return 0, err
			}
			return made.GetNonce(), nil
		}
		data, err := kv.Seal(identityKey, &metapb.Counter{Nonce: kv.Random64() | 1})
		if err != nil {
			return 0, err
		}
		// The first daemon has made it. The next read finds it.
		if _, _, err := m.system.Create(ctx, identityKey, data, r.Seq); err != nil && !errors.Is(err, kv.ErrRevision) && !kv.MayRepeat(ctx, err) {
			return 0, kv.Wrap(op, "", err)
		}
	}
}
