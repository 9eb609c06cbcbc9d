package entries

import (
	"context"
	"math"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/internal/wire"
	"forebay/internal/xattr"
)

// SetXattr changes an extended attribute.
func (v *Service) SetXattr(ctx context.Context, r call.Request, m *wire.SetXattr) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "setxattr", m.Buffer)
	if err != nil {
		return nil, err
	}
	change := xattr.Change{Op: xattr.Op(min(m.Op, math.MaxUint8)), Name: string(m.Name), Value: string(m.Value)}
	if _, err := b.p.Paths.SetXattr(ctx, *r.Caller(), m.Path, change); err != nil {
		return nil, err
	}
	return &wire.Empty{}, nil
}

// Xattrs lists extended attributes: names for all users with access to the file's directory, values
// for those with the right to read it.
func (v *Service) Xattrs(ctx context.Context, r call.Request, m *wire.PathRequest) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "getxattr", m.Buffer)
	if err != nil {
		return nil, err
	}
	e, err := b.p.Paths.Lookup(ctx, *r.Caller(), "getxattr", m.Path)
	if err != nil {
		return nil, err
	}
	answer := &wire.Xattrs{Unreadable: !r.Caller().Permits(e.UID, e.GID, e.Mode, access.Read)}
	for a := range xattr.List(e.Xattrs).All() {
		x := &wire.Xattr{Name: []byte(a.Name), Stored: a.Stored}
		if !answer.Unreadable {
			x.Value = []byte(a.Value)
		}
		answer.Xattrs = append(answer.Xattrs, x)
	}
	return answer, nil
}
