// Package listen decides at which addresses a daemon may serve, and opens its listener for TCP. It must never
// depend on the requests there, nor on the clients' rights.
package listen

import (
	"context"
	"crypto/tls"
	"net"

	"forebay/bbd/peer"
	"forebay/internal/bb"
	"forebay/internal/clustercert"
)

// Addresses are a daemon's addresses, and their guards. The admin listener is none of them. It is open to
// every client, with metrics and readiness alone.
type Addresses struct {
	TCP       string   // of sessions; "": none
	Transfers []string // of one-sided transfers; "": none
	Guarded   bool     // callers have to prove their identity, with a shared key or a certificate
	Insecure  bool     // the administrator gives all hosts and users on the network full rights
}

// Check refuses addresses at which any client could read and write everything (architecture.md, Security): TCP at
// any address, since every user of this node reaches it, and transfers beyond loopback.
func Check(a Addresses) error {
	if a.Guarded || a.Insecure {
		return nil
	}
	const remedy = "set key_file or tls.*, or --insecure where everybody on the network is trusted"
	if a.TCP != "" {
		return bb.E(bb.Invalid, "listen", a.TCP, "serving TCP needs a shared key or certificates").WithRemedy(remedy)
	}
	for _, address := range a.Transfers {
		if address != "" && !loopback(address) {
			return bb.E(bb.Invalid, "listen", address, "one-sided transfers beyond loopback need a shared key or certificates").WithRemedy(remedy)
		}
	}
	return nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// TCP opens the listener of sessions over TCP, and returns the address that it has. Its connections break when a
// peer acknowledges nothing for a while. With credentials, it accepts TLS alone.
func TCP(ctx context.Context, address string, credentials *clustercert.Credentials) (l net.Listener, at string, err error) {
	l, err = (&net.ListenConfig{Control: peer.Impatient}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, "", bb.Wrap("listen", address, err)
	}
	at = l.Addr().String()
	if credentials != nil {
		l = tls.NewListener(l, credentials.Server())
	}
	return l, at, nil
}
