package conn

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"forebay/internal/bb"
)

// InProcess makes connections to a server in this process: embedded.Server is one.
type InProcess interface {
	InProcessConn() (net.Conn, error)
}

// filled is a server in this process that reports whether its disk is full. It does not answer
// changes then, and continues reads.
type filled interface{ Full() error }

// full returns the error of changes while the disk of the server in this process is full, or nil if it is not.
func (o *Options) full() error {
	if server, ok := o.InProcess.(filled); ok {
		return server.Full()
	}
	return nil
}

// Options name the server and the connection to it.
type Options struct {
	URLs        []string // nats://host:port or tls://host:port; ignored with InProcess
	Credentials string   // file with a user's JWT and key; "" for none
	CA          string   // file with the certificates that the server's must descend from; "" for the system's
	Cert, Key   string   // files of the client's own certificate; "" for none
	ClusterKey  []byte   // the cluster key of servers embedded in daemons (see clustertls); nil: they are not embedded
	// ClusterKeys, if not nil, returns the keys that are in use now, ClusterKey at first.
	ClusterKeys func() [][]byte
	InProcess   InProcess

	Name     string // of this client, for the server's administrators; default "forebay"
	Replicas int    // copies of each bucket: 1, 3 or 5; default 1
	// Health, if not nil, keeps how the server answers. It can be read while dial waits for
	// an answer.
	Health *Health
	Logger *slog.Logger // default: discard
}

func (o *Options) setDefaults() {
	if o.Name == "" {
		o.Name = "forebay"
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Health == nil {
		o.Health = &Health{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports every problem at once.
func (o *Options) Validate() error {
	var errs []error
	add := func(value, why string) { errs = append(errs, bb.E(bb.Invalid, "namespace server", value, why)) }
	if o.InProcess == nil && len(o.URLs) == 0 {
		add("", "has neither a URL nor a server in this process")
	}
	if o.Replicas != 0 && o.Replicas != 1 && o.Replicas != 3 && o.Replicas != 5 {
		add(fmt.Sprint(o.Replicas), "replicas must be 1, 3 or 5")
	}
	if (o.Cert == "") != (o.Key == "") {
		add(o.Cert+o.Key, "a certificate and its key go together")
	}
	if len(o.ClusterKey) > 0 && (o.Cert != "" || o.CA != "") {
		add(o.Cert+o.CA, "a cluster key stands for certificates, and none go with it")
	}
	return errors.Join(errs...)
}
