package bbd

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

// The admin server speaks HTTP at two places:
//
//	Admin        host:port    /metrics, /healthz, /readyz: for everybody who reaches it
//	AdminSocket  unix socket  the same, /status and /debug/pprof/: for root and the daemon's user
//
// /status names all buffers and sessions; a profile shows what the daemon does for whom, and takes
// its time. bbctl status shows every user what is theirs.

// serveAdmin starts the admin server where the configuration says.
func (d *Daemon) serveAdmin() error {
	if d.cfg.Admin != "" {
		l, err := net.Listen("tcp", d.cfg.Admin)
		if err != nil {
			return bb.Wrap("listen", d.cfg.Admin, err)
		}
		d.listening.admin = l.Addr().String()
		d.serveHTTP(l, d.publicMux())
	}
	if d.cfg.AdminSocket != "" {
		l, err := unixsocket.Listen(d.cfg.AdminSocket, 0o600)
		if err != nil {
			return err
		}
		d.serveHTTP(ownersListener{l}, d.ownersMux())
	}
	return nil
}

// serveHTTP serves what a listener accepts until the daemon stops.
func (d *Daemon) serveHTTP(l net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: 64 << 10, IdleTimeout: time.Minute,
	}
	d.wg.Go(func() { server.Serve(l) })
	d.wg.Go(func() {
		<-d.ctx.Done()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
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

// publicMux serves what tells nothing of users.
func (d *Daemon) publicMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", d.observe.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", d.serveReady)
	mux.HandleFunc("GET /status", d.refuseStranger)
	mux.HandleFunc("GET /debug/pprof/", d.refuseStranger)
	return mux
}

// ownersMux serves everything.
func (d *Daemon) ownersMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/", d.publicMux())
	mux.HandleFunc("GET /status", d.serveStatus)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	return mux
}

// refuseStranger says where the daemon's owner finds what is not served here.
func (d *Daemon) refuseStranger(w http.ResponseWriter, r *http.Request) {
	text := fmt.Sprintf("%s is for the daemon's owner alone, at the unix socket %s (curl --unix-socket); users have bbctl status",
		r.URL.Path, cmp.Or(d.cfg.AdminSocket, "that listen.admin_socket names"))
	http.Error(w, text, http.StatusForbidden)
}

// serveReady answers whether clients are served: the daemon is ready and the namespace
// answers. If not, it says why.
func (d *Daemon) serveReady(w http.ResponseWriter, _ *http.Request) {
	state := d.state.Load().(string)
	status := d.health.Status()
	trouble := status.Trouble()
	switch {
	case state == "ready" && trouble == nil:
		w.Write([]byte("ready\n"))
		return
	case state == "ready":
		state = trouble.String()
	case state == "starting" && trouble != nil:
		state += ": " + trouble.String()
	case state == "starting":
		if e := d.waitsFor.Load(); e != nil {
			state += ": waits for another daemon: " + e.Error()
		}
	}
	http.Error(w, state, http.StatusServiceUnavailable)
}

func (d *Daemon) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if d.state.Load() == "starting" {
		encoder.Encode(d.statusOfStart())
		return
	}
	encoder.Encode(d.Status())
}
