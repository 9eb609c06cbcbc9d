package bbd

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// maxTokenLife bounds how long a finder of a token can use it.
const maxTokenLife = 30 * 24 * time.Hour

// token makes a token for a buffer, which acts as the buffer's owner.
func (d *Daemon) token(ctx context.Context, r *rpc.Request, m *wire.TokenRequest) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "token", m.Buffer)
	if err != nil {
		return nil, err
	}
	spec, keys, life := b.Spec(), d.cfg.Keys.Keys(), time.Duration(m.LifetimeNs)
	address := bb.Address{Buffer: spec.Name}.String()
	switch {
	case !r.Caller().Owns(spec.UID):
		return nil, access.Denied("token", address, "make tokens for this buffer")
	case len(keys) == 0:
		return nil, bb.E(bb.Unsupported, "token", address, "this daemon has no cluster key to make tokens with").WithRemedy("set key_file")
	case life <= 0 || life > maxTokenLife:
		return nil, bb.E(bb.Invalid, "token", life.String(), fmt.Sprintf("the lifetime is not above 0 and up to %v", maxTokenLife))
	}
	expires := time.Now().Add(life)
	token, err := wire.NewToken(keys[0], &wire.TokenClaims{
		Buffer: spec.Name, Created: spec.Created, UID: spec.UID, GID: spec.GID, Expires: expires,
	})
	if err != nil {
		return nil, err
	}
	r.Session().Logger().Info("a token was made", "buffer", spec.Name, "expires", expires)
	return &wire.Token{Token: token, ExpiresNs: expires.UnixNano()}, nil
}
