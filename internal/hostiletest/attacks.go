package hostiletest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
)

// attacker is the attacking user. No attack depends on time. Each is made whole, with any answers
// of the daemon. If it succeeds, or could not be made, it fails the test.
type attacker struct {
	*task
	ctx  context.Context
	c    *client.Client
	far  *client.Client // has no memory mapped; the fate of the attacker's regions does not end it
	in   *bufio.Reader
	rnd  *rand.Rand
	fifo string
	last int
	held []mapping              // regions that the attacker keeps mapped
	done atomic.Pointer[string] // the first argument of succeeded()
}

// succeeded notes from any goroutine that an attack has succeeded.
func (a *attacker) succeeded(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	a.done.CompareAndSwap(nil, &what)
}

// kind is a kind of attack.
type kind struct {
	run      func(*attacker) error
	tcp      bool // it needs a daemon with TCP
	tls      bool // it needs TLS there
	restarts bool // it needs restarts of the daemon
}

// errVoid is the error of an attack that found nothing to attack.
var errVoid = errors.New("the daemon gave the attacker nothing to attack")

// attacks are all kinds.
var attacks = map[string]kind{
	"bad frames":   {run: (*attacker).badFrames},
	"bad requests": {run: (*attacker).badRequests},

	"sessions":            {run: (*attacker).sessions},
	"silent connections":  {run: (*attacker).silent},
	"unfinished requests": {run: (*attacker).unfinishedRequests},
	"open files":          {run: (*attacker).openFiles},
	"leases":              {run: (*attacker).leases},
	"memory":              {run: (*attacker).memory},
	"writers that wait":   {run: (*attacker).waiters},

	"FIFOs named by a URL":   {run: (*attacker).fifos},
	"files named by a URL":   {run: (*attacker).namedFiles},
	"endpoint of its own":    {run: (*attacker).endpoint},
	"pipes in the store":     {run: (*attacker).pipes},
	"store that is replaced": {run: (*attacker).replacedStore},
	"directory that changes": {run: (*attacker).changingDirectory},
	"directories of others":  {run: (*attacker).othersDirectories},

	"a region's bytes":        {run: (*attacker).scribble},
	"a region's journal":      {run: (*attacker).journal},
	"a region that is cut":    {run: (*attacker).cut},
	"forged headers":          {run: (*attacker).forgedHeaders, restarts: true},
	"forged records":          {run: (*attacker).forgedRecords, restarts: true},
	"regions of nobody":       {run: (*attacker).nobodysRegions, restarts: true},
	"regions that stay held":  {run: (*attacker).heldRegions, restarts: true},
	"TCP without proof":       {run: (*attacker).unproven, tcp: true},
	"bad frames over TCP":     {run: (*attacker).badFramesOverTCP, tcp: true},
	"proofs that are none":    {run: (*attacker).proofs, tcp: true},
	"tokens that are changed": {run: (*attacker).tokens, tcp: true},
	"root by a certificate":   {run: (*attacker).rootByCertificate, tcp: true, tls: true},
}

// Kinds returns the names of all kinds of attacks.
func Kinds() []string { return slices.Sorted(maps.Keys(attacks)) }

// Over reports whether a kind of attack can be made over TCP with TLS, or without it.
func Over(name string, tls bool) bool { return tls || !attacks[name].tls }

// Buffers of the attacker's without a store. Nothing waits for memory in the one.
const (
	scratchBuffer = "attacker"
	patientBuffer = "patient"
)

// attack makes all attacks, in an order of the seed's.
func attack(t *task) (r Result, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &attacker{
		task: t, ctx: ctx, in: bufio.NewReader(os.Stdin), rnd: rand.New(rand.NewPCG(t.Seed, 2)), fifo: filepath.Join(t.Dir, "fifo"),
	}
	defer a.unmapAll()
	r.Attacks, r.Void, r.Why, r.Took = map[string]int{}, map[string]int{}, map[string]string{}, map[string]time.Duration{}
	if err := syscall.Mkfifo(a.fifo, 0o600); err != nil {
		return r, err
	}
	if a.c, err = client.Dial(ctx, client.Options{Address: "unix://" + t.Socket}); err != nil {
		return r, err
	}
	defer a.c.Close()
	for _, name := range []string{scratchBuffer, patientBuffer} {
		if _, err := admin.CreateBuffer(ctx, a.c, admin.BufferSpec{Name: name, NoWait: name == scratchBuffer}); err != nil {
			return r, err
		}
	}
	if err := a.dialFar(); err != nil {
		return r, err
	}
	defer a.far.Close()
	for _, name := range a.order() {
		began := time.Now()
		err := a.make(&r, name)
		if what := a.done.Load(); what != nil {
			err = errors.Join(err, errors.New(*what))
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.Took[name] += time.Since(began)
		r.Order = append(r.Order, name)
		if err := a.searchHeld(); err != nil {
			return r, fmt.Errorf("after %s: %w", name, err)
		}
	}
	return r, nil
}

// isVoid reports whether an attack could not be made. The daemon had nothing for the attacker, an
// earlier attack has cut the memory, or a restart came between.
func isVoid(err error) bool {
	for _, kind := range []error{errVoid, client.ErrBusy, client.ErrNoSpace, client.ErrLost, client.ErrUnavailable, client.ErrUnknownOutcome} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// dialFar begins a session over TCP for the files of the attacker's buffer, with a token.
func (a *attacker) dialFar() error {
	a.far = a.c
	if a.TCP == "" {
		return nil
	}
	text, _, err := admin.Token(a.ctx, a.c, scratchBuffer, 24*time.Hour)
	if err != nil {
		return err
	}
	file := filepath.Join(a.Dir, "token")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	a.far, err = client.Dial(a.ctx, client.Options{Address: "tcp://" + a.TCP, TokenFile: file, CA: a.TLS.CA})
	return err
}

// scratch is the attacker's buffer, for bytes.
func (a *attacker) scratch() *client.Buffer { return a.far.Buffer(scratchBuffer) }

// make makes one attack. One that finds nothing to attack is made again after the victim has worked.
func (a *attacker) make(r *Result, name string) error {
	const tries = 5
	for range tries {
		err := attacks[name].run(a)
		if !isVoid(err) {
			r.Attacks[name]++
			return err
		}
		r.Void[name]++
		r.Why[name] = err.Error()
		if err := a.awaitVictim(); err != nil {
			return err
		}
	}
	return nil
}

// order returns the kinds of the attacks to be made.
func (a *attacker) order() (order []string) {
	for _, name := range Kinds() {
		k := attacks[name]
		if len(a.Only) > 0 && !slices.Contains(a.Only, name) || k.tcp && a.TCP == "" || k.tls && a.TLS.CA == "" || k.restarts && !a.Restarts {
			continue
		}
		for range a.Rounds {
			order = append(order, name)
		}
	}
	a.rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// ask sends an event to the test and waits for the answer.
func (a *attacker) ask(e event) error {
	if err := tell(e); err != nil {
		return err
	}
	_, err := a.in.ReadString('\n')
	return err
}

// awaitVictim waits until the victim has begun a round and ended it. The victim can work despite
// all that the attacker holds now.
func (a *attacker) awaitVictim() error {
	if !a.HasVictim {
		return nil
	}
	return a.ask(event{Await: true})
}

// probe checks whether root gets in, despite all that the attacker holds now.
func (a *attacker) probe() error { return a.ask(event{Probe: true}) }

// restart has the daemon restarted, one way or the other.
func (a *attacker) restart() error { return a.ask(event{Restart: true, Kill: a.rnd.IntN(2) == 0}) }

// within returns a context for one step.
func (a *attacker) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.ctx, a.Patience)
}

// name returns a new name.
func (a *attacker) name(what string) string {
	a.last++
	return fmt.Sprint(what, "-", a.last)
}

// bytes returns so many of the seed's.
func (a *attacker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(a.rnd.Uint32())
	}
	return b
}

// raw is a session that sends bytes that a client would not.
type raw struct {
	net.Conn
	in       *wire.Reader
	last     uint64
	instance uint64 // of the daemon's memory
}

// dial begins a session. It returns nil if it is turned away, which is the daemon's right.
func (a *attacker) dial() (*raw, error) {
	conn, err := net.Dial("unix", a.Socket)
	if err != nil {
		return nil, err
	}
	r := &raw{Conn: conn, in: wire.NewReader(conn)}
	w, err := wire.Handshake(conn, r.in, &wire.Hello{Client: "hostile"})
	if err != nil {
		conn.Close()
		return nil, nil
	}
	r.instance = w.Instance
	conn.SetDeadline(time.Now().Add(a.Patience))
	return r, nil
}

// session is dial where an attack needs one.
func (a *attacker) session() (*raw, error) {
	r, err := a.dial()
	if err == nil && r == nil {
		err = errVoid
	}
	return r, err
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

func (a *attacker) badFrames() error { return a.noise(a.dialUnix) }

func (a *attacker) badFramesOverTCP() error {
	bare := func() (net.Conn, error) { return net.Dial("tcp", a.TCP) }
	return errors.Join(a.noise(bare), a.noise(a.dialTCP)) // where there is TLS, before it and in it
}

func (a *attacker) dialUnix() (net.Conn, error) { return net.Dial("unix", a.Socket) }

// dialTCP connects, with TLS and no certificate of its own where there is TLS.
func (a *attacker) dialTCP() (net.Conn, error) {
	return secured(a.TCP, clustercert.Files{CA: a.TLS.CA})
}

// secured connects over TCP, with TLS if there are certificates for it.
func secured(address string, files clustercert.Files) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil || files.CA == "" {
		return conn, err
	}
	c, err := clustercert.Load(files)
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := c.Secure(ctx, conn)
	if err != nil {
		conn.Close()
	}
	return s, err
}

func (a *attacker) noise(dial func() (net.Conn, error)) error {
	for range 40 {
		conn, err := dial()
		if err != nil {
			return err
		}
		_, _ = conn.Write(BadFrame(a.rnd))
		if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.Copy(io.Discard, conn) // until the daemon has had enough of it
		}
		conn.Close()
	}
	return nil
}

// badRequests are frames that are right, with messages that are noise, or have wrong values.
func (a *attacker) badRequests() error {
	ctx, cancel := a.within()
	defer cancel()
	name := a.name("bad")
	if _, err := admin.CreateBuffer(ctx, a.c, admin.BufferSpec{Name: name, NoWait: true}); err != nil {
		return err
	}
	for range 20 {
		r, err := a.session()
		if err != nil {
			return err
		}
		var m wire.Empty
		m.ProtoReflect().SetUnknown(a.bytes(a.rnd.IntN(200)))
		_ = r.call(wire.Type(a.rnd.IntN(80)), &m, nil, a.bytes(a.rnd.IntN(100)))
		for id := range uint64(20) { // the session ends before some are answered
			typ, m, data := BadRequest(a.rnd, name)
			var frame *wire.FrameError // a value that no message can have
			if _, err := wire.WriteFrame(r, nil, typ, 0, 100+id, m, data); err != nil && !errors.As(err, &frame) {
				break
			}
		}
		r.Close()
	}
	if err := admin.DiscardBuffer(ctx, a.c, name); err != nil && !errors.Is(err, client.ErrNotFound) {
		return err // one of the requests may have done it
	}
	return nil
}
