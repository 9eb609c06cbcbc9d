package hostiletest

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/wire"
)

// Attacks that take all that there is of something, and keep it until the victim has worked.

// hoard has the resources that the attacker keeps.
type hoard []*raw

func (h hoard) Close() {
	for _, r := range h {
		r.Close()
	}
}

// hoard takes sessions, as many as the daemon gives, up to a number, does something in each, and
// keeps them until the victim has worked.
func (a *attacker) hoard(most int, do func(r *raw) error) error {
	all, err := a.take(most, do)
	if err == nil {
		err = errors.Join(a.probe(), a.awaitVictim())
	}
	all.Close()
	return errors.Join(err, a.settled())
}

// settled waits until the daemon has detected that the attacker's sessions have ended.
func (a *attacker) settled() error {
	ctx, cancel := a.within()
	defer cancel()
	for {
		_, err := admin.BufferInfo(ctx, a.c, scratchBuffer)
		if !errors.Is(err, client.ErrBusy) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// take begins sessions, as hoard keeps them.
func (a *attacker) take(most int, do func(r *raw) error) (all hoard, err error) {
	for range most {
		r, err := a.dial()
		if err != nil || r == nil {
			break // no more descriptors, or turned away
		}
		all = append(all, r)
		if do(r) != nil {
			break // it is the daemon's right to end a session
		}
	}
	if len(all) == 0 {
		err = errVoid
	}
	return all, err
}

// sessions opens as many sessions as it gets.
func (a *attacker) sessions() error { return a.hoard(600, func(*raw) error { return nil }) }

// unfinishedRequests sends large requests without their ends. The daemon reads a bounded part of them. The
// rest, but for the sockets' buffers, does not leave the attacker.
func (a *attacker) unfinishedRequests() error {
	const sockets = 1 << 20 // more than both ends of one hold
	frame, err := wire.AppendFrame(nil, wire.Type_TYPE_COMMIT, 0, 9, &wire.Commit{Handle: 1}, wire.MaxData)
	if err != nil {
		return err
	}
	part := append(frame, make([]byte, wire.MaxData-100)...)
	var (
		took atomic.Int64
		held atomic.Int64
		all  sync.WaitGroup
	)
	defer all.Wait()
	return a.hoard(24, func(r *raw) error { // fewer than there are sessions for
		r.SetDeadline(time.Time{}) // it ends when the session does
		held.Add(1)
		all.Go(func() {
			for sent := 0; sent < len(part); {
				n, err := r.Write(part[sent:min(len(part), sent+32<<10)])
				sent += n
				if most := MaxRequestMemory + held.Load()*sockets; took.Add(int64(n)) > most {
					a.succeeded("the daemon holds more than %d bytes of requests without an end", most)
				}
				if err != nil {
					return
				}
			}
		})
		return nil
	})
}

// openFiles opens one file again and again, until the daemon refuses.
func (a *attacker) openFiles() error {
	open := 0
	return a.hoard(8, func(r *raw) error {
		for id := range uint64(1000) {
			m := &wire.Open{Handle: id + 1, Buffer: scratchBuffer, Path: "o", Write: true, Create: true, Mode: 0o600}
			if r.call(wire.Type_TYPE_OPEN, m, &wire.Opened{}, nil) != nil {
				return nil
			}
			if open++; open > MaxOpenFiles {
				a.succeeded("one user has %d files open", open)
			}
		}
		return nil
	})
}

// leases takes leases until the daemon refuses.
func (a *attacker) leases() error {
	if err := a.populated(); err != nil {
		return err
	}
	return a.hoard(8, func(r *raw) error {
		for range 1000 {
			if r.call(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: scratchBuffer, Bytes: 1 << 20}, &wire.Lease{}, nil) != nil {
				return nil
			}
		}
		return nil
	})
}

// memory fills memory with dirty bytes that no store takes.
func (a *attacker) memory() error {
	ctx, cancel := a.within()
	defer cancel()
	dir, content := a.name("dirty"), a.bytes(8<<20)
	b := a.scratch()
	if err := b.MkdirAll(ctx, dir, 0o700); err != nil {
		return err
	}
	for i := range 1000 {
		if err := b.WriteFile(ctx, fmt.Sprint(dir, "/", i), content, 0o600); err != nil {
			break
		}
	}
	if err := errors.Join(a.probe(), a.awaitVictim()); err != nil {
		return err
	}
	return b.RemoveAll(ctx, dir)
}

// waiters has many writers wait for memory that there is not.
func (a *attacker) waiters() error {
	ctx, cancel := a.within()
	defer cancel()
	name := a.name("waits")
	if _, err := admin.CreateBuffer(ctx, a.c, admin.BufferSpec{Name: name}); err != nil {
		return err
	}
	err := a.hoard(16, func(r *raw) error {
		for id := range uint64(200) {
			if _, err := wire.WriteFrame(r, nil, wire.Type_TYPE_LEASE, 0, id+1, &wire.LeaseRequest{Buffer: name, Bytes: 32 << 20}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return admin.DiscardBuffer(ctx, a.c, name)
}

// silent opens as many silent connections as it can.
func (a *attacker) silent() error { return a.connections(a.dialUnix) }

// unproven is silent over TCP.
func (a *attacker) unproven() error {
	return a.connections(func() (net.Conn, error) { return net.Dial("tcp", a.TCP) })
}

func (a *attacker) connections(dial func() (net.Conn, error)) error {
	var all []net.Conn
	defer func() {
		for _, conn := range all {
			conn.Close()
		}
	}()
	for i := range 300 {
		conn, err := dial()
		if err != nil {
			break
		}
		all = append(all, conn)
		if i%3 == 0 {
			_, _ = conn.Write([]byte{1})
		}
	}
	if len(all) == 0 {
		return errVoid
	}
	return errors.Join(a.probe(), a.awaitVictim())
}
