// Package admin serves metrics, readiness, status and profiles over HTTP. It must never depend on
// the origin of any of these, nor change anything in the daemon.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/internal/unixsocket"
)

// The admin server serves HTTP at two places:
//
//	Address  host:port    /metrics, /healthz, /readyz: for all with access to it
//	Socket   unix socket  the same, /status and /debug/pprof/: for root and the daemon's user
//
// /status names all buffers and sessions. A profile shows the daemon's work for each user, and costs
// its time. bbctl status shows each user their own buffers and sessions.

// Options are the server's addresses and its content. Its functions may be called concurrently.
type Options struct {
	Address string // host:port; "": nowhere
	Socket  string // path of a unix socket; "": none
	Metrics http.Handler
	Unready func() string // why clients are not served; "": they are
	Status  func() any    // becomes JSON
	Go      func(func())  // starts a goroutine that ends with the context
}

// Serve starts the admin server, which runs until ctx ends, and returns the address of the public
// listener, or "" if there is none.
func Serve(ctx context.Context, o Options) (address string, err error) {
	if o.Address != "" {
		l, err := net.Listen("tcp", o.Address)
		if err != nil {
			return "", bb.Wrap("listen", o.Address, err)
		}
		address = l.Addr().String()
		o.serve(ctx, l, o.publicMux())
	}
	if o.Socket != "" {
		l, err := unixsocket.Listen(o.Socket, 0o600)
		if err != nil {
			return address, err
		}
		o.serve(ctx, ownersListener{l}, o.ownersMux())
	}
	return address, nil
}

// serve serves the connections of a listener until ctx ends.
func (o *Options) serve(ctx context.Context, l net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: 64 << 10, IdleTimeout: time.Minute,
	}
	o.Go(func() { server.Serve(l) })
	o.Go(func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	})
}

// ownersListener accepts connections of root and of the daemon's user. The socket's mode keeps
// the others out already, from the beginning (unixsocket.Listen).
type ownersListener struct{ net.Listener }

// Accept returns the next connection of the daemon's owner.
func (l ownersListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if ucred, err := unixsocket.Peer(conn.(*net.UnixConn)); err == nil && access.IsOwner(ucred.Uid) {
			return conn, nil
		}
		conn.Close()
	}
}

// publicMux serves the pages without facts about users.
func (o *Options) publicMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", o.serveReady)
	mux.HandleFunc("GET /status", o.refuseStranger)
	mux.HandleFunc("GET /debug/pprof/", o.refuseStranger)
	return mux
}

// ownersMux serves everything.
func (o *Options) ownersMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/", o.publicMux())
	mux.HandleFunc("GET /status", o.serveStatus)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	return mux
}

// refuseStranger names the place where the daemon's owner finds a page that is not served here.
func (o *Options) refuseStranger(w http.ResponseWriter, r *http.Request) {
	text := fmt.Sprintf("%s is for the daemon's owner alone, at the unix socket %s (curl --unix-socket); users have bbctl status",
		r.URL.Path, cmp.Or(o.Socket, "that listen.admin_socket names"))
	http.Error(w, text, http.StatusForbidden)
}

// serveReady answers whether clients are served, and if not, why.
func (o *Options) serveReady(w http.ResponseWriter, _ *http.Request) {
	if why := o.Unready(); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	w.Write([]byte("ready\n"))
}

func (o *Options) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(o.Status())
}

// Unready returns why a daemon in a state does not serve clients, or "" if it does. Trouble is why the namespace
// does not answer, and waits is why another daemon keeps this one from starting. Each is "" if there is no such
// reason.
//
//	state     namespace  other daemon  answer
//	ready     answers    any           ""
//	ready     does not   any           its trouble
//	starting  does not   any           starting: its trouble
//	starting  answers    is waited for starting: waits for another daemon
//	others    any        any           the state
func Unready(state, trouble, waits string) string {
	switch {
	case state == "ready":
		return trouble
	case state == "starting" && trouble != "":
		return state + ": " + trouble
	case state == "starting" && waits != "":
		return state + ": waits for another daemon: " + waits
	}
	return state
}
