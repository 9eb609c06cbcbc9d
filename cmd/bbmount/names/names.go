// Package names carries out changes of a buffer's names until their outcome is known: one that was repeated looks whether the
// first attempt has done it. It must never depend on what the kernel knows of the names.
package names

import (
	"context"
	"io/fs"
	"time"

	"forebay/client"
	"forebay/internal/bb"
)

// Changes changes the names of a buffer. Its methods may be called concurrently.
type Changes struct {
	Client *client.Client
	Buffer *client.Buffer
	// Settle calls do until its outcome is known, with repeated set from the second time on.
	Settle func(ctx context.Context, do func(repeated bool) error) error
}

// Create creates a file, with open. After a lost answer it opens the one that this mount has created.
func (c *Changes) Create(ctx context.Context, p string, mode fs.FileMode, open func(client.OpenOptions) error) error {
	return c.Settle(ctx, func(repeated bool) error {
		err := open(client.OpenOptions{Write: true, Create: true, Exclusive: true, Mode: mode})
		if repeated && client.KindOf(err) == client.ErrExists && c.isNew(ctx, p) {
			err = open(client.OpenOptions{Write: true})
		}
		return err
	})
}

// isNew reports whether a file is without any write, with this user, and with this node as its owner.
func (c *Changes) isNew(ctx context.Context, p string) bool {
	e, err := c.Buffer.Stat(ctx, p)
	self := c.Client.Server()
	return err == nil && !e.IsDir() && e.Size == 0 && e.UID == self.UID && len(e.Holders) == 1 && e.Holders[0] == self.Node
}

// Make makes an entry without bytes. Same reports whether an entry equals the wanted one.
func (c *Changes) Make(ctx context.Context, p string, do func() error, same func(*client.Entry) bool) error {
	return c.Settle(ctx, func(repeated bool) error {
		err := do()
		if repeated && client.KindOf(err) == client.ErrExists {
			if e, statErr := c.Buffer.Stat(ctx, p); statErr == nil && same(&e) {
				return nil
			}
		}
		return err
	})
}

// Remove removes a file or an empty directory.
func (c *Changes) Remove(ctx context.Context, p string) error {
	return c.Settle(ctx, func(repeated bool) error {
		err := c.Buffer.Remove(ctx, p)
		if repeated && client.KindOf(err) == client.ErrNotFound {
			return nil
		}
		return err
	})
}

// Moved is the subject of a rename.
type Moved struct {
	File bb.FileID // 0: a directory
	// NoReplace refuses a new name that is taken.
	NoReplace bool
}

// isAt reports whether a path leads to it: to the same file, or to any directory. Its error is that of a daemon without
// which that is not known.
func (m *Moved) isAt(ctx context.Context, b *client.Buffer, p string) (bool, error) {
	e, err := b.Stat(ctx, p)
	if client.KindOf(err) == client.ErrUnavailable {
		return false, err
	}
	return err == nil && e.IsDir() == (m.File == 0) && e.File == m.File, nil
}

// isDone reports whether it has left one path for another.
func (m *Moved) isDone(ctx context.Context, b *client.Buffer, from, to string) (bool, error) {
	there, err := m.isAt(ctx, b, to)
	if err != nil || !there {
		return false, err
	}
	here, err := m.isAt(ctx, b, from)
	return !here, err
}

// Rename renames a file or directory.
func (c *Changes) Rename(ctx context.Context, from, to string, m Moved) error {
	rename := c.Buffer.Rename
	if m.NoReplace {
		rename = c.Buffer.RenameNoReplace
	}
	return c.Settle(ctx, func(repeated bool) error {
		if repeated {
			if done, err := m.isDone(ctx, c.Buffer, from, to); done || err != nil {
				return err
			}
		}
		return rename(ctx, from, to)
	})
}

// Exchange swaps the names of two files or directories.
func (c *Changes) Exchange(ctx context.Context, from, to string) error {
	for pause := time.Millisecond; ; pause *= 2 {
		var pair [2]client.Entry
		err := c.Settle(ctx, func(bool) (err error) {
			if pair[0], err = c.Buffer.Stat(ctx, from); err == nil {
				pair[1], err = c.Buffer.Stat(ctx, to)
			}
			return err
		})
		if err != nil {
			return err
		}
		again := false
		err = c.Settle(ctx, func(repeated bool) error {
			again = repeated
			return c.Buffer.ExchangeEntries(ctx, &pair[0], &pair[1]) // once, however often it is sent
		})
		if client.KindOf(err) != client.ErrBusy || again || pause > time.Second {
			return err
		}
		select { // one of them was replaced meanwhile
		case <-time.After(pause):
		case <-ctx.Done():
			return bb.Cancelled
		}
	}
}
