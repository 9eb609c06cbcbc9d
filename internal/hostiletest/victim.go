package hostiletest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// victim is the working user.
type victim struct {
	*task
	done  Result
	c     *client.Client
	store string
	token string // file with a token for the buffer
	rnd   *rand.Rand
	kept  map[string][]byte // dirty files that all may read, and that no store has
}

// Buffers of the victim's: one with a store, and one without that all users may read.
const (
	victimsBuffer = "victim"
	openBuffer    = "open"
)

// work writes files, drains and compares until standard input ends.
func work(t *task) (Result, error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	v := &victim{task: t, rnd: rand.New(rand.NewPCG(t.Seed, 1)), store: filepath.Join(t.Dir, "store"), kept: map[string][]byte{}}
	if err := v.begin(); err != nil {
		return v.done, err
	}
	defer v.c.Close()
	for {
		if err := v.round(); err != nil {
			return v.done, fmt.Errorf("after %d files: %w", v.done.Files, err)
		}
		v.done.Rounds++
		if err := tell(event{Round: true}); err != nil {
			return v.done, err
		}
		select {
		case <-ended:
			return v.done, nil
		default:
		}
	}
}

// begin makes the victim's buffers.
func (v *victim) begin() error {
	if err := os.Mkdir(v.store, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), v.Patience)
	defer cancel()
	var err error
	if v.c, err = client.Dial(ctx, client.Options{Address: "unix://" + v.Socket, VerifyAll: true}); err != nil {
		return err
	}
	if _, err := admin.CreateBuffer(ctx, v.c, admin.BufferSpec{Name: victimsBuffer, Backing: "file://" + v.store}); err != nil {
		return err
	}
	if _, err := admin.CreateBuffer(ctx, v.c, admin.BufferSpec{Name: openBuffer, Mode: 0o755}); err != nil || v.TCP == "" {
		return err
	}
	text, _, err := admin.Token(ctx, v.c, victimsBuffer, 24*time.Hour)
	if err != nil {
		return err
	}
	v.token = filepath.Join(v.Dir, "token")
	return os.WriteFile(v.token, []byte(text+"\n"), 0o600)
}

// again does something until it succeeds, or fails for another reason than a restart of the daemon.
func again(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		restarted := errors.Is(err, client.ErrUnknownOutcome) || errors.Is(err, client.ErrUnavailable)
		if err == nil || !restarted || ctx.Err() != nil {
			return named(what, err)
		}
		time.Sleep(time.Millisecond) // the socket is not there yet
	}
}

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// content is random, with the victim's words in each page.
func (v *victim) content(n int) []byte {
	b := make([]byte, n, n+8)
	for i := 0; i < n; i += 8 {
		binary.NativeEndian.PutUint64(b[i:i+8:n+8], v.rnd.Uint64())
	}
	for i := 0; i < n; i += 4096 {
		copy(b[i:], victimsWords)
	}
	return b
}

// check reads a file and compares.
func check(ctx context.Context, b *client.Buffer, name string, content []byte) error {
	return again(ctx, "read "+name, func() error {
		got, err := b.ReadFile(ctx, name)
		if err == nil && !bytes.Equal(got, content) {
			return fmt.Errorf("%d bytes were read of %d, not what was written", len(got), len(content))
		}
		return err
	})
}

// round writes some files, reads them back, drains, and compares the store's files.
func (v *victim) round() error {
	ctx, cancel := context.WithTimeout(context.Background(), v.Patience)
	defer cancel()
	b, wrote := v.c.Buffer(victimsBuffer), map[string][]byte{}
	for i := range 4 {
		name, content := fmt.Sprint(v.done.Files+i), v.content(1+v.rnd.IntN(600_000))
		wrote[name] = content
		if err := again(ctx, "write "+name, func() error { return b.WriteFile(ctx, name, content, 0o600) }); err != nil {
			return err
		}
		if err := check(ctx, b, name, content); err != nil {
			return err
		}
	}
	if err := v.overTCP(ctx, wrote); err != nil {
		return err
	}
	if err := again(ctx, "drain", func() error { _, err := admin.Drain(ctx, v.c, victimsBuffer, 0, nil); return err }); err != nil {
		return err
	}
	for name, content := range wrote {
		if got, err := os.ReadFile(filepath.Join(v.store, name)); err != nil || !bytes.Equal(got, content) {
			return fmt.Errorf("%s: the store has %d bytes of %d, not what was written (%w)", name, len(got), len(content), err)
		}
		err := again(ctx, "remove "+name, func() error {
			if err := b.Remove(ctx, name); err != nil && !errors.Is(err, client.ErrNotFound) { // the first try may have done it
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		v.done.Files++
	}
	return v.keep(ctx)
}

// keep compares files that stay in memory, and replaces one of them.
func (v *victim) keep(ctx context.Context) error {
	const files = 6
	b := v.c.Buffer(openBuffer)
	for name, content := range v.kept {
		if err := check(ctx, b, name, content); err != nil {
			return fmt.Errorf("kept: %w", err)
		}
	}
	name, content := fmt.Sprint(v.rnd.IntN(files)), v.content(1+v.rnd.IntN(300_000))
	v.kept[name] = content
	return again(ctx, "write "+name+" to keep it", func() error { return b.WriteFile(ctx, name, content, 0o644) })
}

// overTCP reads one file in a session of its own, over TCP with a token.
func (v *victim) overTCP(ctx context.Context, wrote map[string][]byte) error {
	if v.token == "" {
		return nil
	}
	for name, content := range wrote {
		var c *client.Client
		err := again(ctx, "a session over TCP", func() (err error) {
			c, err = client.Dial(ctx, client.Options{Address: "tcp://" + v.TCP, TokenFile: v.token, CA: v.TLS.CA})
			return err
		})
		if err != nil {
			return err
		}
		defer c.Close()
		v.done.Tokens++
		return check(ctx, c.Buffer(victimsBuffer), name, content)
	}
	return nil
}
