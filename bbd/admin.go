package bbd

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"forebay/internal/bb"
)

// serveAdmin starts the admin HTTP server: /metrics, /healthz, /readyz, /status, and
// pprof where it listens on loopback.
func (d *Daemon) serveAdmin() error {
	l, err := net.Listen("tcp", d.cfg.Admin)
	if err != nil {
		return bb.Wrap("listen", d.cfg.Admin, err)
	}
	d.admin = l.Addr().String()
	server := &http.Server{
		Handler: d.adminMux(loopback(d.admin)), ReadHeaderTimeout: 10 * time.Second,
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
	return nil
}

func (d *Daemon) adminMux(local bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", d.observe.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", d.serveReady)
	mux.HandleFunc("GET /status", d.serveStatus)
	if local {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	}
	return mux
}

// serveReady answers whether clients are served: the daemon is ready and the namespace answers.
func (d *Daemon) serveReady(w http.ResponseWriter, _ *http.Request) {
	state := d.state.Load().(string)
	if state != "ready" {
		http.Error(w, state, http.StatusServiceUnavailable)
		return
	}
	if s := d.meta.Status(); !s.Connected {
		http.Error(w, "the namespace's server is away: "+s.LastError, http.StatusServiceUnavailable)
		return
	}
	w.Write([]byte("ready\n"))
}

func (d *Daemon) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(d.Status())
}
