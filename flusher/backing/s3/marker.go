package s3

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/answer"
	"forebay/internal/bb"
)

// A bucket has no directories. A directory that holds nothing is a marker then, an object without
// bytes with a key that ends in a slash, as s3fs, rclone and the consoles make them. Markers of
// this package carry keyOurs, and no others are changed or removed.
const (
	keyOurs    = "Forebay-Directory"
	markerType = "application/x-directory"
)

// Others finds the directories that have markers.
func (s *Store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	if dir != "" {
		if err := backing.CheckName("list", dir); err != nil {
			return err
		}
		dir += "/"
	}
	return s.list(ctx, "list", dir, func(info minio.ObjectInfo) error {
		key := strings.TrimPrefix(info.Key, s.prefix)
		name, is := strings.CutSuffix(key, "/")
		if !is || backing.CheckName("list", name) != nil {
			return nil
		}
		o, err := s.marker(ctx, name)
		if bb.KindOf(err) == bb.NotFound {
			return nil // removed since
		}
		if err != nil {
			return err
		}
		return fn(o.Other)
	})
}

// marker is the object that stands for a directory.
type marker struct {
	backing.Other
	ours bool
	mark string // of which Options
}

func (s *Store) marker(ctx context.Context, name string) (marker, error) {
	ctx, done := s.call(ctx)
	defer done()
	info, err := s.client.StatObject(ctx, s.bucket, s.key(name)+"/", minio.StatObjectOptions{})
	if err != nil {
		return marker{}, answer.Wrap("stat", name, err)
	}
	o := s.object(info)
	mark, ours := info.UserMetadata[keyOurs]
	m := marker{backing.Other{Name: name, Mode: fs.ModeDir | o.Mode, MTime: o.MTime, Bare: !o.HasMode, Xattrs: o.Xattrs}, ours, mark}
	if m.Bare {
		m.Mode |= 0o755
	}
	return m, nil
}

// has reports whether the marker has attributes.
func (m *marker) has(attrs *backing.Attrs) bool {
	return m.Mode.Perm() == attrs.Mode.Perm() && sameTime(m.MTime, attrs.MTime) && m.Xattrs.Equal(fitting(attrs))
}

// MakeDir puts a marker for a directory that holds nothing. If it has other attributes, it puts
// the marker anew. A marker that another program put stays.
func (s *Store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	const op = "make directory"
	if err := backing.CheckName(op, name); err != nil || opts.Holds {
		return err
	}
	if _, err := s.Stat(ctx, name); err == nil {
		return bb.E(bb.Exists, op, name, "the store has an object of this name")
	} else if bb.KindOf(err) != bb.NotFound || answer.IsNoBucket(err) {
		return err
	}
	there, err := s.marker(ctx, name)
	missing := bb.KindOf(err) == bb.NotFound
	if err != nil && !missing {
		return err
	}
	opts.Attrs.Xattrs = there.Xattrs.With(fitting(&opts.Attrs))
	if !missing && (!there.ours || opts.Keep && (s.opts.Mark == "" || there.mark != s.opts.Mark) || there.has(&opts.Attrs)) {
		return nil
	}
	ctx, done := s.call(ctx)
	defer done()
	to := minio.PutObjectOptions{
		ContentType: markerType, UserMetadata: map[string]string{keyOurs: cmp.Or(s.opts.Mark, "1")},
		DisableContentSha256: true, // there is nothing to be signed in chunks
	}
	addMetadata(to.UserMetadata, &opts.Attrs, dirType)
	if missing { // where the store compares, it refuses this if another program was faster
		compares, err := s.comparesConditions(ctx)
		if err != nil {
			return err
		}
		condition{absent: compares}.set(&to)
	}
	_, err = s.client.PutObject(ctx, s.bucket, s.key(name)+"/", strings.NewReader(""), 0, "", "", to)
	if err = answer.Wrap(op, name, err); answer.ConditionFailed(err) {
		return nil
	}
	return err
}

// sameTime reports whether a marker has the wanted time. A time that a marker cannot store matches any.
func sameTime(there, want time.Time) bool {
	return want.IsZero() || want.Unix() < 0 || there.Equal(want)
}

// errFound ends a listing.
var errFound = errors.New("found")

// RemoveDir removes a marker of ours, unless something else lies in the directory.
func (s *Store) RemoveDir(ctx context.Context, name string) error {
	if err := backing.CheckName("remove directory", name); err != nil {
		return err
	}
	there, err := s.marker(ctx, name)
	if bb.KindOf(err) == bb.NotFound && !answer.IsNoBucket(err) || err == nil && !there.ours {
		return nil
	}
	if err != nil {
		return err
	}
	own := s.key(name) + "/"
	err = s.list(ctx, "remove directory", name+"/", func(info minio.ObjectInfo) error {
		if info.Key != own {
			return errFound
		}
		return nil
	})
	if err != nil {
		if errors.Is(err, errFound) {
			return nil
		}
		return err
	}
	ctx, done := s.call(ctx)
	defer done()
	return s.remove(ctx, own, name)
}
