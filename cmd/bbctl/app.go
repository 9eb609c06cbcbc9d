package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"forebay/client"
)

// app is what all commands share: where to print, and the connection.
type app struct {
	in      io.Reader
	out     io.Writer
	err     io.Writer
	address string
	keyFile string
	token   string // file
	tls     struct{ ca, cert, key string }
	json    bool
	timeout time.Duration // of a whole command; 0: none
	noGlob  bool          // paths are no patterns
	context string        // name of one; see contextHelp
	slurm   bool          // the command is one of bbctl slurm

	progressMode string // of --progress
	left         string // what a removal that did not come to its end has done; "": there is none
	heard        uint32 // atomic; 1: of its work, or that it waits was printed
	starting     uint32 // atomic; 1: no daemon answers yet
	atOnce       bool   // a daemon that is not there is an answer: it is not waited for
	client       *client.Client
	job          string // that the daemons go on with when bbctl is interrupted
}

// A daemon of this machine that was started right before a command is waited for.
const (
	startPause = 50 * time.Millisecond
	saysAfter  = 2 * time.Second // that it waits
)

var startTime = 4 * time.Second // how long; tests change it

// dial connects when the first command needs it. It waits a little for a daemon of this
// machine that is starting.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	if a.client != nil {
		return a.client, nil
	}
	if err := a.useContext(); err != nil {
		return nil, err
	}
	options := client.Options{
		Address: a.socketAddress(), KeyFile: a.keyFile, TokenFile: a.token, CA: a.tls.ca, Cert: a.tls.cert, Key: a.tls.key, Name: "bbctl " + version,
	}
	began := time.Now()
	for {
		c, err := client.Dial(ctx, options)
		if client.KindOf(err) != client.ErrUnavailable || a.atOnce || !a.local() || time.Since(began) > startTime {
			atomic.StoreUint32(&a.starting, 0)
			a.client = c
			return c, explainStart(ctx, err)
		}
		atomic.StoreUint32(&a.starting, 1)
		if !a.json && time.Since(began) > saysAfter && atomic.CompareAndSwapUint32(&a.heard, 0, 1) {
			fmt.Fprintln(a.err, startingLine())
		}
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func startingLine() string {
	return fmt.Sprintf("bbctl: no daemon answers yet: waiting %v for one that is starting", startTime)
}

// local reports whether the daemon that is asked is one of this machine.
func (a *app) local() bool {
	address := cmp.Or(a.socketAddress(), os.Getenv("FOREBAY_SOCKET"))
	return !strings.Contains(address, "tcp://")
}

// socketAddress is the daemon's address as --socket has it; "": it was not given.
func (a *app) socketAddress() string {
	if a.address != "" && !strings.Contains(a.address, "://") {
		return "unix://" + a.address
	}
	return a.address
}

func (a *app) close() {
	if a.client != nil {
		a.client.Close()
	}
}

// buffer returns the buffer that an address names, and the path in it.
func (a *app) buffer(ctx context.Context, address string) (*client.Buffer, client.Address, error) {
	at, err := client.ParseAddress(address)
	if err != nil {
		return nil, at, err
	}
	c, err := a.dial(ctx)
	if err != nil {
		return nil, at, err
	}
	return c.Buffer(at.Buffer), at, nil
}

// interactive reports whether somebody is there to answer a question.
func (a *app) interactive() bool {
	in, ok := a.in.(*os.File)
	if !ok || a.json || !term.IsTerminal(int(in.Fd())) {
		return false
	}
	out, ok := a.err.(*os.File)
	return ok && term.IsTerminal(int(out.Fd()))
}

// print prints v as JSON, or as text.
func (a *app) print(v any, text func()) error {
	if !a.json {
		text()
		return nil
	}
	return json.NewEncoder(a.out).Encode(v)
}

// table prints rows in columns.
func (a *app) table(rows [][]string) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush()
}

// parseSize reads a size as people write it: 64GiB, 1.5TB, 100M, 4096.
func parseSize(what, text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<62 || strings.HasPrefix(strings.TrimSpace(text), "-") {
		return 0, &client.Error{
			Kind: client.ErrInvalid, Op: what, Path: fmt.Sprintf("%q", text),
			Err: fmt.Errorf("invalid: not a size"), Remedy: "write 64GiB, 1.5TB, 100M or 4096",
		}
	}
	return int64(n), nil
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// age prints seconds as a person would.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
