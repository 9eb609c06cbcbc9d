package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"forebay/internal/bb"
)

// A daemon that starts may wait for others of its cluster, and opens the socket of clients last.
// Meanwhile its admin server answers GET /readyz with the reason.

const (
	readyTime  = time.Second // for the answer
	readyBytes = 4 << 10     // of it
	// nodesSocket is where the daemon of a node listens by default, and nodesAdmin its admin server.
	nodesSocket = "unix:///run/forebay/bbd.sock"
	nodesAdmin  = "127.0.0.1:7480"
)

// ExplainStart replaces the error of a client that found no daemon, if one of those that it tried
// is starting or stopping, by that daemon's reason.
func ExplainStart(ctx context.Context, err error) error {
	var e *bb.Error
	if !errors.As(err, &e) || e.Kind != bb.Unavailable || e.Op != "dial" {
		return err
	}
	for address := range strings.SplitSeq(e.Path, ", ") {
		path, ok := strings.CutPrefix(address, "unix://")
		if !ok {
			continue
		}
		state := readiness(ctx, "unix", strings.TrimSuffix(path, ".sock")+"-admin.sock")
		if state == "" && address == nodesSocket {
			state = readiness(ctx, "tcp", nodesAdmin)
		}
		if state != "" {
			return bb.E(bb.Unavailable, "dial", address, "the daemon does not serve yet: "+state).
				WithRemedy("see its log: journalctl -u forebay-bbd")
		}
	}
	return err
}

// readiness returns the reason for which a daemon does not serve, or "" if none answers there, or
// if it serves.
func readiness(ctx context.Context, network, address string) string {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bbd/readyz", nil)
	if err != nil {
		return ""
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, readyBytes))
	if err != nil || answer.StatusCode != http.StatusServiceUnavailable {
		return ""
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
