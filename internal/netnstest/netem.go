package netnstest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// link is how bad a host's link is, in each direction.
type link struct {
	delay, jitter time.Duration
	loss          float64 // share of the frames
	rate          float64 // bytes a second; 0: no limit
	limit         int     // frames that wait at most; more are lost
}

// defaultLimit is netem's own (tc-netem(8)).
const defaultLimit = 1000

// Netem makes a host's link slow and lossy, in both directions alike. The words are
// those of tc-netem(8), of which these are known: "delay TIME [JITTER]", "loss SHARE%",
// "rate BITS" (kbit, mbit, gbit), "limit FRAMES". A later call replaces an earlier one.
//
// Where the kernel has no netem, the test process does the same itself, frame by frame,
// between the host and the switch.
func (h *Host) Netem(spec string) {
	h.c.tb.Helper()
	l, err := parseLink(spec)
	if err != nil {
		h.c.tb.Fatalf("Netem(%q): %v", spec, err)
	}
	h.ClearNetem()
	if err := h.kernelNetem(strings.Fields(spec)); err == nil {
		return
	}
	h.kernelClear()
	if h.wire, err = newWire(h, l); err != nil {
		h.c.tb.Fatalf("Netem(%q): %v", spec, err)
	}
}

// ClearNetem makes a host's link good again.
func (h *Host) ClearNetem() {
	h.c.tb.Helper()
	h.kernelClear()
	if h.wire == nil {
		return
	}
	err := batch(h.c.hub(), fmt.Sprintf("link set %s master hub", h.port()))
	h.wire.close()
	h.wire = nil
	if err != nil {
		h.c.tb.Fatalf("ClearNetem: %v", err)
	}
}

func (h *Host) kernelNetem(words []string) error {
	for _, end := range h.ends() {
		args := append([]string{"-n", end[0], "qdisc", "replace", "dev", end[1], "root", "netem"}, words...)
		if err := run("tc", args...); err != nil {
			return err
		}
	}
	return nil
}

// kernelClear removes the settings of kernelNetem, or a part of them.
func (h *Host) kernelClear() {
	for _, end := range h.ends() {
		run("tc", "-n", end[0], "qdisc", "delete", "dev", end[1], "root") // fails if there is none
	}
}

// ends are the namespaces and names of the host's interface and of its port. A queueing discipline
// works on outgoing frames of an interface.
func (h *Host) ends() [][2]string {
	return [][2]string{{h.namespace(), "eth0"}, {h.c.hub(), h.port()}}
}

func parseLink(spec string) (link, error) {
	l := link{limit: defaultLimit}
	words := strings.Fields(spec)
	next := func(parse func(string) error) error {
		if len(words) == 0 {
			return errors.New("a value is missing at the end")
		}
		err := parse(words[0])
		words = words[1:]
		return err
	}
	duration := func(to *time.Duration) func(string) error {
		return func(s string) (err error) { *to, err = time.ParseDuration(s); return err }
	}
	if len(words) == 0 {
		return l, errors.New("it is empty")
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		var err error
		switch word {
		case "delay":
			err = next(duration(&l.delay))
			if err == nil && len(words) > 0 && words[0][0] >= '0' && words[0][0] <= '9' {
				err = next(duration(&l.jitter))
			}
		case "loss":
			err = next(func(s string) error { return parseShare(s, &l.loss) })
		case "rate":
			err = next(func(s string) error { return parseRate(s, &l.rate) })
		case "limit":
			err = next(func(s string) (err error) { l.limit, err = strconv.Atoi(s); return err })
		default:
			err = errors.New("it is not known")
		}
		if err != nil {
			return l, fmt.Errorf("%s: %w", word, err)
		}
	}
	return l, nil
}

func parseShare(s string, to *float64) error {
	digits, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || !percent || v < 0 || v > 100 {
		return fmt.Errorf("%q is not a share like 1%%", s)
	}
	*to = v / 100
	return nil
}

func parseRate(s string, to *float64) error {
	for unit, bits := range map[string]float64{"kbit": 1e3, "mbit": 1e6, "gbit": 1e9} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			v, err := strconv.ParseFloat(digits, 64)
			if err != nil || v <= 0 {
				break
			}
			*to = v * bits / 8
			return nil
		}
	}
	return fmt.Errorf("%q is not a rate like 10mbit", s)
}

// A wire carries frames between a host's port and the switch, with its link's faults:
//
//	eth0 ═══ port ─ side ─ near ══ wire ══ far ─ hub
//	 host │           the hub's namespace
//
// side is a bridge for the port alone. near and far are taps (interfaces whose frames a process
// reads and writes).
type wire struct {
	h       *Host
	taps    [2]*os.File
	closed  chan struct{}
	carries sync.WaitGroup
}

func newWire(h *Host, l link) (_ *wire, err error) {
	w := &wire{h: h, closed: make(chan struct{})}
	near, far, side := "near"+h.Name, "far"+h.Name, "side"+h.Name
	for i, name := range []string{near, far} {
		if w.taps[i], err = newTap(h.c.hub(), name); err != nil {
			w.close()
			return nil, err
		}
	}
	if err := batch(
		h.c.hub(), "link add "+side+" type bridge mcast_snooping 0", "link set "+side+" addrgenmode none up",
		"link set "+near+" addrgenmode none master "+side+" up", "link set "+far+" addrgenmode none master hub up",
		"link set "+h.port()+" master "+side,
	); err != nil {
		w.close()
		return nil, err
	}
	w.carry(w.taps[0], w.taps[1], l)
	w.carry(w.taps[1], w.taps[0], l)
	return w, nil
}

// newTap makes a tap in a namespace. It ends with its file.
func newTap(namespace, name string) (*os.File, error) {
	var tap *os.File
	return tap, inside(namespace, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("/dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err == nil {
			// There is no packet information, so a read returns the frame.
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			unix.Close(fd)
			return fmt.Errorf("making the tap %s: %w", name, err)
		}
		tap = os.NewFile(uintptr(fd), name)
		return nil
	})
}

// frame is one frame and when it arrives at the other end.
type frame struct {
	bytes []byte
	due   time.Time
}

// carry carries frames one way until the wire is closed.
func (w *wire) carry(from, to *os.File, l link) {
	waiting := make(chan frame, max(1, l.limit))
	w.carries.Go(func() {
		defer close(waiting)
		var sent time.Time // when the last frame has left
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if rand.Float64() < l.loss || len(waiting) == cap(waiting) {
				continue
			}
			now := time.Now()
			if sent.Before(now) {
				sent = now
			}
			if l.rate > 0 {
				sent = sent.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
			}
			late := l.delay
			if l.jitter > 0 {
				late += time.Duration((rand.Float64()*2 - 1) * float64(l.jitter))
			}
			waiting <- frame{bytes.Clone(buf[:n]), sent.Add(late)}
		}
	})
	w.carries.Go(func() {
		for f := range waiting {
			select {
			case <-time.After(time.Until(f.due)):
				to.Write(f.bytes) // a frame that finds no room is lost
			case <-w.closed:
			}
		}
	})
}

// close removes the wire, and the interfaces that it was made of.
func (w *wire) close() {
	close(w.closed)
	for _, tap := range w.taps {
		if tap != nil {
			tap.Close()
		}
	}
	w.carries.Wait()
	run("ip", "-n", w.h.c.hub(), "link", "delete", "side"+w.h.Name) // not there if it was never finished
}
