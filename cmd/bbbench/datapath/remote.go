package datapath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
	"forebay/rdma/tcp"
)

// Row 5: bytes between an application's memory and regions of another machine, which
// is this one, over loopback.

// Remote writes and reads a file over TCP, and in turns with it sends and receives as
// many bytes over as many plain connections as the client opens, from and into as much
// memory.
func Remote(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	raw, err := startStreams(tcp.DefaultStreams, e.Sizes.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, raw.stop()) }()
	times, err := remoteRounds(ctx, e, raw, func() error { return nil })
	if err != nil {
		return nil, err
	}
	size := measure.Quantity(float64(e.Sizes.File), measure.Bytes)
	streams := fmt.Sprintf("%d plain TCP connections on loopback to another process, 1 MiB at a time, ", tcp.DefaultStreams)
	return []report.Result{{
		What: "remote write, tcp, 1 MiB", Goal: report.RatioGoal("0.9", 0.9),
		Limit:  measure.Of(streams+"send "+size, measure.BytesPerSecond, times.sent),
		Result: measure.Of("create, write "+size+" in 1 MiB writes, close, over TCP", measure.BytesPerSecond, times.written),
	}, {
		What: "remote read, tcp, 1 MiB", Goal: report.RatioGoal("0.9", 0.9),
		Limit:  measure.Of(streams+"receive "+size, measure.BytesPerSecond, times.received),
		Result: measure.Of("open, read "+size+" in 1 MiB reads, verified, close, over TCP", measure.BytesPerSecond, times.read),
	}}, nil
}

// remoteRounds writes and reads a file as a client elsewhere, in turns with a limit. The first
// round touches the memory and opens connections. After it warm is called.
func remoteRounds(ctx context.Context, e *testbed.Env, limit mover, warm func() error) (_ *remoteTimes, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	far, err := e.Daemon.DialFar(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	p.buffer = far.Buffer(p.buffer.Name())
	into, err := hostlimit.Anonymous(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.Free()) }()
	if err := new(remoteTimes).round(ctx, p, limit, into.Bytes); err != nil {
		return nil, err
	}
	if err := warm(); err != nil {
		return nil, err
	}
	times := &remoteTimes{}
	for range e.Sizes.Rounds {
		if err := times.round(ctx, p, limit, into.Bytes); err != nil {
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
	t.sent = append(t.sent, measure.Rate(size, took))
	if took, err = p.writeKept(ctx, "file"); err != nil {
		return err
	}
	t.written = append(t.written, measure.Rate(size, took))
	if took, err = raw.move(into, false); err != nil {
		return err
	}
	t.received = append(t.received, measure.Rate(size, took))
	if took, err = readFile(ctx, p.buffer, "file", into); err != nil {
		return err
	}
	t.read = append(t.read, measure.Rate(size, took))
	_, want := hostlimit.Ways[0].Pass(p.target, p.source)
	if _, got := hostlimit.Ways[0].Pass(p.target, into); got != want {
		return errors.New("the bytes read are not those written")
	}
	return p.buffer.Remove(ctx, "file")
}

// writeKept writes the source as a file that stays.
func (p *localPair) writeKept(ctx context.Context, name string) (time.Duration, error) {
	began := time.Now()
	err := testbed.WriteFile(ctx, p.buffer, name, p.source, int64(len(p.source)))
	return time.Since(began), err
}

// streams are plain connections to a worker that sends and receives.
type streams struct {
	conns  []net.Conn
	worker *process.Crew
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
	s.worker, err = process.StartCrew(1, process.WorkStream, "--address", l.Addr().String(), "--streams", fmt.Sprint(n), "--bytes", fmt.Sprint(bytes))
	if err != nil {
		return nil, err
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(process.StartTime)); err != nil {
		return nil, err
	}
	for range n {
		conn, err := l.Accept()
		if err != nil {
			return nil, fmt.Errorf("the worker does not connect: %w", err)
		}
		s.conns = append(s.conns, conn)
	}
	return s, s.worker.Await()
}

// move sends p, or fills it with the worker's bytes, and waits until all of them have arrived.
func (s *streams) move(p []byte, send bool) (time.Duration, error) {
	began := time.Now()
	if err := s.worker.Begin(process.Order{Send: !send}); err != nil {
		return 0, err
	}
	err := moveAll(s.conns, p, send)
	err = errors.Join(err, s.worker.Await())
	return time.Since(began), err
}

func (s *streams) stop() error {
	for _, c := range s.conns {
		_ = c.Close()
	}
	if s.worker == nil {
		return nil
	}
	return s.worker.Dismiss()
}

// moveAll sends or receives p, a part of it over each connection, in steps.
func moveAll(conns []net.Conn, p []byte, send bool) error {
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	part := len(p) / len(conns)
	for i, c := range conns {
		mine := p[i*part : (i+1)*part]
		wg.Go(func() {
			for at := 0; at < len(mine) && errs[i] == nil; at += hostlimit.Step {
				piece := mine[at:min(at+hostlimit.Step, len(mine))]
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

// Streamer is a worker at the other end of plain connections.
type Streamer struct {
	Address string
	Streams int
	Bytes   int64
}

// Serve carries out orders until there are no more.
func (s Streamer) Serve(in io.Reader, out io.Writer) error {
	m, err := hostlimit.Anonymous(s.Bytes)
	if err != nil {
		return err
	}
	hostlimit.Fill(m.Bytes)
	var conns []net.Conn
	for range s.Streams {
		conn, err := net.Dial("tcp", s.Address)
		if err != nil {
			return err
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	err = process.Obey(in, out, func(o process.Order) error { return moveAll(conns, m.Bytes, o.Send) })
	return errors.Join(err, m.Free())
}
