package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// A stream that meets a full disk stores nothing any more, however much is free later, and its server answers none of the
// messages for it. It reads on. Only a start of the server ends that:
//
//	serving ── an error of the disk ──▶ full: changes fail, reads go on ──▶ room again ──▶ the server is started anew
//	   ▲                                                                                     │
//	   └──────────────────── clients connect again, and repeat lost calls ◀───────────────┘
//
// A server of a cluster leaves its streams to the others, and is not started anew.

// room is the number of free bytes that a server is started anew with: about the size of its messages between two
// checkpoints of a namespace.
const room = 16 << 20

// mendEvery is the time between two checks of the disk.
const mendEvery = time.Second

// fullness is whether the disk of a server is full.
type fullness struct {
	is      atomic.Bool
	noted   chan struct{} // has an element when the disk was found full
	ctx     context.Context
	cancel  context.CancelFunc
	mending sync.WaitGroup
}

func (f *fullness) begin() {
	f.noted = make(chan struct{}, 1)
	f.ctx, f.cancel = context.WithCancel(context.Background())
}

func (f *fullness) stop() {
	f.cancel()
	f.mending.Wait()
}

// note records that the disk is full.
func (f *fullness) note() {
	f.is.Store(true)
	select {
	case f.noted <- struct{}{}:
	default:
	}
}

// tellsFull reports whether an error that the server logs is that of a full disk, or of a quota.
func tellsFull(text string) bool {
	return strings.Contains(text, unix.ENOSPC.Error()) || strings.Contains(text, unix.EDQUOT.Error())
}

// Full returns the error of changes while the disk of the server's folder is full, or nil if it is
// not, or others of the cluster continue.
func (e *Server) Full() error {
	if !e.full.is.Load() || e.o.Cluster != nil {
		return nil
	}
	return bb.E(bb.NoSpace, "change", e.o.Dir, "the file system of the namespace server's folder is full: names cannot be changed, and are read on").
		WithRemedy("free room on it: changes go on by themselves then")
}

// mend starts the server anew when its disk was full and has room again.
func (e *Server) mend() {
	for {
		select {
		case <-e.full.noted:
		case <-e.full.ctx.Done():
			return
		}
		e.full.is.Store(true)
		e.log.Error("the disk of the namespace server is full: changes of names fail until it has room", "folder", e.o.Dir, "remedy", "free room on its file system")
		for tries := 0; !e.again(&tries); {
			select {
			case <-time.After(mendEvery):
			case <-e.full.ctx.Done():
				return
			}
		}
	}
}

// again starts the server anew if there is room, and reports whether it runs. tries counts the
// failed attempts.
func (e *Server) again(tries *int) bool {
	if !hasRoom(e.o.Dir) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if at := e.now.s.Addr(); at != nil && *tries == 0 {
		e.o.Listen = at.String() // the port may have been any free one
	}
	e.now.end()
	select {
	case <-e.full.noted: // it is of the server that has ended
	default:
	}
	now, err := e.start(e.full.ctx)
	if err != nil {
		if *tries++; *tries == 1 && e.full.ctx.Err() == nil {
			e.log.Error("the namespace server does not start anew after its disk was full", "folder", e.o.Dir, "err", err)
		}
		return false
	}
	e.now = now
	e.full.is.Store(len(e.full.noted) > 0)
	e.log.Warn("the namespace server was started anew: its disk has room again", "folder", e.o.Dir)
	return true
}

// hasRoom reports whether files can be written in a folder.
func hasRoom(dir string) bool {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil || int64(s.Bavail)*s.Bsize < room || s.Files > 0 && s.Ffree == 0 {
		return false
	}
	probe := filepath.Join(dir, ".room") // a quota shows nowhere else
	err := os.WriteFile(probe, make([]byte, room/16), 0o600)
	return errors.Join(err, os.Remove(probe)) == nil
}
