package posix

import (
	"os"

	"forebay/flusher/backing/posix/identity"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
)

// Identify returns a directory's identity for Options.Root.
func Identify(dir string) (string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", rootError(dir, err)
	}
	defer f.Close()
	i, err := identity.Of(f)
	if err != nil {
		return "", rootError(dir, err)
	}
	i.Mount = identity.MountOf(f)
	return i.String(), nil
}

// OnLustre reports whether an identity, as Identify returns it, is that of a directory on Lustre.
func OnLustre(id string) bool {
	i, ok := identity.Parse(id)
	return ok && i.Kind == lustre.Magic
}

// checkRoot compares the open directory with the store's own.
func (s *Store) checkRoot(dir *os.File) error {
	now, err := s.opts.identify(dir)
	if err != nil {
		return s.rootGone(err)
	}
	if now.Inode != s.identity.Inode { // seldom: to find the mount point takes longer than all the rest
		now.Mount = identity.MountOf(dir)
	}
	if why := s.identity.Differs(now); why != "" {
		return bb.E(bb.Unavailable, "open backing", s.dir, "is not the directory that the buffer was made with: "+why).
			WithRemedy("mount the file system again; if it was replaced for good, copy the buffer elsewhere with bbctl stage-out")
	}
	return nil
}

// Identity returns which directory the store's root is, as Identify does.
func (s *Store) Identity() string { return s.identity.String() }
