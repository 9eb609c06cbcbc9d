package hostiletest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// attacker is the user who attacks. No attack depends on time: each is made whole, whatever the
// daemon answers, and fails only where it could not be made.
type attacker struct {
	*task
	rnd  *rand.Rand
	fifo string
}

// attacks are all kinds; those that take memory away for good are made once.
var attacks = map[string]struct {
	run  func(*attacker) error
	once bool
}{
	"bad frames":            {run: (*attacker).badFrames},
	"bad requests":          {run: (*attacker).badRequests},
	"sessions":              {run: (*attacker).sessions},
	"unfinished requests":   {run: (*attacker).unfinishedRequests},
	"FIFOs":                 {run: (*attacker).fifos},
	"a region's bytes":      {run: (*attacker).scribble},
	"a region's journal":    {run: (*attacker).journal},
	"a region that is cut":  {run: (*attacker).cut, once: true},
	"endpoint of its own":   {run: (*attacker).endpoint},
	"files open, left open": {run: (*attacker).openFiles},
}

// attack makes all attacks, in an order of the seed's.
func attack(t *task) (r Result, err error) {
	a := &attacker{task: t, rnd: rand.New(rand.NewPCG(t.Seed, 2)), fifo: filepath.Join(t.Dir, "fifo")}
	r.Attacks = map[string]int{}
	if err := syscall.Mkfifo(a.fifo, 0o600); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + t.Socket})
	if err != nil {
		return r, err
	}
	defer c.Close()
	if _, err := c.CreateBuffer(ctx, client.BufferSpec{Name: "attacker"}); err != nil {
		return r, err
	}
	var order []string
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		for i := range t.Rounds {
			if i == 0 || !attacks[name].once {
				order = append(order, name)
			}
		}
	}
	a.rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, name := range order {
		if err := attacks[name].run(a); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.Attacks[name]++
	}
	return r, nil
}

// bytes returns so many of the seed's.
func (a *attacker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(a.rnd.Uint32())
	}
	return b
}

// raw is a session that says what a client would not.
type raw struct {
	net.Conn
	in   *wire.Reader
	last uint64
}

// dial begins a session; nil if it is turned away, which is the daemon's right.
func (a *attacker) dial() (*raw, error) {
	conn, err := net.Dial("unix", a.Socket)
	if err != nil {
		return nil, err
	}
	r := &raw{Conn: conn, in: wire.NewReader(conn)}
	if _, err := wire.Handshake(conn, r.in, &wire.Hello{Client: "hostile"}); err != nil {
		conn.Close()
		return nil, nil
	}
	conn.SetDeadline(time.Now().Add(patience))
	return r, nil
}

// call sends a request and waits for its answer, or for the end of the session.
func (r *raw) call(typ wire.Type, m, reply proto.Message, data []byte) error {
	r.last++
	if _, err := wire.WriteFrame(r, nil, typ, 0, r.last, m, data); err != nil {
		return err
	}
	for {
		head, message, err := r.in.Next()
		if err == nil && head.DataLength > 0 {
			err = r.in.ReadData(make([]byte, head.DataLength))
		}
		if err != nil {
			return err
		}
		if head.Request == r.last {
			return wire.DecodeReply(head, message, reply)
		}
	}
}

func (a *attacker) badFrames() error {
	for range 10 {
		conn, err := net.Dial("unix", a.Socket)
		if err != nil {
			return err
		}
		_, _ = conn.Write(a.bytes(1 + a.rnd.IntN(4096)))
		conn.Close()
	}
	return nil
}

// badRequests are frames that are right, with messages that are noise.
func (a *attacker) badRequests() error {
	for range 10 {
		r, err := a.dial()
		if err != nil || r == nil {
			return err
		}
		var m wire.Empty
		m.ProtoReflect().SetUnknown(a.bytes(a.rnd.IntN(200)))
		_ = r.call(wire.Type(a.rnd.IntN(64)), &m, nil, a.bytes(a.rnd.IntN(100)))
		r.Close()
	}
	return nil
}

// sessions takes what it gets.
func (a *attacker) sessions() error {
	var all []*raw
	defer func() {
		for _, r := range all {
			r.Close()
		}
	}()
	for range 600 {
		r, err := a.dial()
		if err != nil || r == nil {
			return nil // no more descriptors, or turned away
		}
		all = append(all, r)
	}
	return nil
}

// unfinishedRequests announces large requests, and sends a part of each.
func (a *attacker) unfinishedRequests() error {
	frame, err := wire.AppendFrame(nil, wire.Type_TYPE_COMMIT, 0, 9, &wire.Commit{Handle: 1}, wire.MaxData)
	if err != nil {
		return err
	}
	for range 64 {
		r, err := a.dial()
		if err != nil || r == nil {
			return err
		}
		defer r.Close()
		if _, err := r.Write(append(slices.Clone(frame), 1, 2, 3)); err != nil {
			return err
		}
	}
	return nil
}

// stage asks for a stage-in, which must be answered.
func (a *attacker) stage(url string) error {
	r, err := a.dial()
	if err != nil || r == nil {
		return err
	}
	defer r.Close()
	if err := r.call(wire.Type_TYPE_STAGE_IN, &wire.Stage{Buffer: "attacker", Path: "x", Url: url}, nil, nil); err == nil {
		return fmt.Errorf("%s was staged in", url)
	}
	return nil
}

func (a *attacker) fifos() error {
	for _, query := range []string{"&ca=" + a.fifo, "&credentials=" + a.fifo, "&credentials=/dev/zero"} {
		if err := a.stage("s3://bucket/x?endpoint=https://127.0.0.1:1" + query); err != nil {
			return err
		}
	}
	return nil
}

func (a *attacker) endpoint() error {
	return a.stage("s3://bucket/x?path_style=true&endpoint=http://127.0.0.1:1&profile=other")
}

// region returns the path of a region of the attacker's.
func (r *raw) region() (string, error) {
	var l wire.Lease
	if err := r.call(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "attacker", Bytes: 1 << 20}, &l, nil); err != nil {
		return "", err
	}
	return l.Region.GetPath(), r.call(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: l.Id}, nil, nil)
}

// onRegion does something to a region and then has the daemon copy into it.
func (a *attacker) onRegion(do func(path string) error) error {
	r, err := a.dial()
	if err != nil || r == nil {
		return err
	}
	defer r.Close()
	path, err := r.region()
	if err != nil || path == "" {
		return nil // of memory that an earlier attack has damaged
	}
	if err := do(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	name := fmt.Sprint("in", a.rnd.Uint64())
	if r.call(wire.Type_TYPE_OPEN, &wire.Open{Handle: 1, Buffer: "attacker", Path: name, Write: true, Create: true, Mode: 0o644}, &wire.Opened{}, nil) != nil {
		return nil
	}
	data := a.bytes(16 << 10)
	for i := range 20 {
		e := []*wire.NewExtent{{FileOffset: int64(i) << 14, Length: 16 << 10, Checksum: checksum.Sum(data)}}
		if r.call(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Extents: e}, &wire.Committed{}, data) != nil {
			break
		}
	}
	return nil
}

// scribble writes over where headers, tables and records are or once were.
func (a *attacker) scribble() error {
	return a.onRegion(func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		for _, at := range []int64{0, 4096, 8192, 1 << 20, 2<<20 - 4096} {
			if _, err := f.WriteAt(a.bytes(4096), at); err != nil {
				return err
			}
		}
		return nil
	})
}

// journal opens what a restart believes of a region, and fails if it can.
func (a *attacker) journal() error {
	r, err := a.dial()
	if err != nil || r == nil {
		return err
	}
	defer r.Close()
	path, err := r.region()
	if err != nil || path == "" {
		return nil // of memory that an earlier attack has damaged
	}
	for _, how := range []int{os.O_RDONLY, os.O_RDWR} {
		f, err := os.OpenFile(path+".journal", how, 0)
		if err == nil {
			f.Close()
			return fmt.Errorf("a user can open %s", f.Name())
		}
	}
	if err := os.Rename(path, path+".journal"); err == nil {
		return fmt.Errorf("a user can replace the journal of %s", path)
	}
	return nil
}

func (a *attacker) cut() error {
	return a.onRegion(func(path string) error { return os.Truncate(path, 0) })
}

// openFiles opens one file again and again, and leaves the rest to the end of the session.
func (a *attacker) openFiles() error {
	r, err := a.dial()
	if err != nil || r == nil {
		return err
	}
	defer r.Close()
	for id := range uint64(200) {
		if r.call(wire.Type_TYPE_OPEN, &wire.Open{Handle: id + 1, Buffer: "attacker", Path: "o", Write: true, Create: true, Mode: 0o600}, &wire.Opened{}, nil) != nil {
			break
		}
	}
	return nil
}
