package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"forebay/rdma/tcp"
)

// Row 5: bytes between an application's memory and regions of another machine, which
// is this one, over loopback.

// remote writes and reads a file over TCP, and in turns with it sends and receives as
// many bytes over as many plain connections as the client opens, from and into as much
// memory.
func remote(ctx context.Context, e *env) (_ []Result, err error) {
	raw, err := startStreams(tcp.DefaultStreams, e.sizes.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, raw.stop()) }()
	times, err := remoteRounds(ctx, e, raw, func() error { return nil })
	if err != nil {
		return nil, err
	}
	size := quantity(float64(e.sizes.File), Bytes)
	streams := fmt.Sprintf("%d plain TCP connections on loopback to another process, 1 MiB at a time, ", tcp.DefaultStreams)
	return []Result{{
		What: "remote write, tcp, 1 MiB", Goal: ratioGoal("0.9", 0.9),
		Limit:  figure(streams+"send "+size, BytesPerSecond, times.sent),
		Result: figure("create, write "+size+" in 1 MiB writes, close, over TCP", BytesPerSecond, times.written),
	}, {
		What: "remote read, tcp, 1 MiB", Goal: ratioGoal("0.9", 0.9),
		Limit:  figure(streams+"receive "+size, BytesPerSecond, times.received),
		Result: figure("open, read "+size+" in 1 MiB reads, verified, close, over TCP", BytesPerSecond, times.read),
	}}, nil
}

// remoteRounds writes and reads a file as a client elsewhere, in turns with a limit. The
// first round touches the memory and opens connections; after it warm is called.
func remoteRounds(ctx context.Context, e *env, limit mover, warm func() error) (_ *remoteTimes, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	far, err := e.daemon.dialFar(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	p.buffer = far.Buffer(p.buffer.Name())
	into, err := anonymous(e.sizes.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.free()) }()
	if err := new(remoteTimes).round(ctx, p, limit, into.bytes); err != nil {
		return nil, err
	}
	if err := warm(); err != nil {
		return nil, err
	}
	times := &remoteTimes{}
	for range e.sizes.Rounds {
		if err := times.round(ctx, p, limit, into.bytes); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// mover moves bytes without us, there or back: the limit.
type mover interface {
	move(p []byte, send bool) (time.Duration, error)
}

// remoteTimes are the rates of all rounds.
type remoteTimes struct{ sent, written, received, read []float64 }

func (t *remoteTimes) round(ctx context.Context, p *localPair, raw mover, into []byte) error {
	size := int64(len(p.source))
	took, err := raw.move(p.source, true)
	if err != nil {
		return err
	}
	t.sent = append(t.sent, rate(size, took))
	if took, err = p.writeKept(ctx, "file"); err != nil {
		return err
	}
	t.written = append(t.written, rate(size, took))
	if took, err = raw.move(into, false); err != nil {
		return err
	}
	t.received = append(t.received, rate(size, took))
	if took, err = readFile(ctx, p.buffer, "file", into); err != nil {
		return err
	}
	t.read = append(t.read, rate(size, took))
	_, want := ways[0].pass(p.target, p.source)
	if _, got := ways[0].pass(p.target, into); got != want {
		return errors.New("the bytes read are not those written")
	}
	return p.buffer.Remove(ctx, "file")
}

// writeKept writes the source as a file that stays.
func (p *localPair) writeKept(ctx context.Context, name string) (time.Duration, error) {
	began := time.Now()
	err := writeFile(ctx, p.buffer, name, p.source, int64(len(p.source)))
	return time.Since(began), err
}

// streams are plain connections to a worker that sends and receives.
type streams struct {
	conns  []net.Conn
	worker *crew
}

func startStreams(n int, bytes int64) (_ *streams, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	s := &streams{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	s.worker, err = startCrew(1, workStream, "--address", l.Addr().String(), "--streams", fmt.Sprint(n), "--bytes", fmt.Sprint(bytes))
	if err != nil {
		return nil, err
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(startTime)); err != nil {
		return nil, err
	}
	for range n {
		conn, err := l.Accept()
		if err != nil {
			return nil, fmt.Errorf("the worker does not connect: %w", err)
		}
		s.conns = append(s.conns, conn)
	}
	return s, s.worker.await()
}

// move sends p, or fills it with what the worker sends, and waits until all is there.
func (s *streams) move(p []byte, send bool) (time.Duration, error) {
	began := time.Now()
	if err := s.worker.orders[0].Encode(order{Send: !send}); err != nil {
		return 0, err
	}
	err := moveAll(s.conns, p, send)
	err = errors.Join(err, s.worker.await())
	return time.Since(began), err
}

func (s *streams) stop() error {
	for _, c := range s.conns {
		_ = c.Close()
	}
	if s.worker == nil {
		return nil
	}
	return s.worker.dismiss()
}

// moveAll sends or receives p, a part of it over each connection, in steps.
func moveAll(conns []net.Conn, p []byte, send bool) error {
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	part := len(p) / len(conns)
	for i, c := range conns {
		mine := p[i*part : (i+1)*part]
		wg.Go(func() {
			for at := 0; at < len(mine) && errs[i] == nil; at += step {
				piece := mine[at:min(at+step, len(mine))]
				if send {
					_, errs[i] = c.Write(piece)
				} else {
					_, errs[i] = io.ReadFull(c, piece)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// streamer is a worker at the other end of plain connections.
type streamer struct {
	address string
	streams int
	bytes   int64
}

func (s streamer) serve(in io.Reader, out io.Writer) error {
	m, err := anonymous(s.bytes)
	if err != nil {
		return err
	}
	fill(m.bytes)
	var conns []net.Conn
	for range s.streams {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			return err
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	err = obey(in, out, func(o order) error { return moveAll(conns, m.bytes, o.Send) })
	return errors.Join(err, m.free())
}
