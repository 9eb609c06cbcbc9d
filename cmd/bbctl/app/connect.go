package app

import (
	"context"
	"time"

	"forebay/client"
)

// Connect connects to the node's daemon, and waits for it if it is starting.
func (a *App) Connect(ctx context.Context, retry time.Duration) (*client.Client, error) {
	deadline := time.Now().Add(retry)
	for {
		c, err := client.Dial(ctx, client.Options{
			Address: a.SocketAddress(), KeyFile: a.KeyFile, TokenFile: a.Token, CA: a.TLS.CA, Cert: a.TLS.Cert, Key: a.TLS.Key,
			Name: "bbctl slurm " + a.Version, RetryFor: retry,
		})
		if client.KindOf(err) != client.ErrUnavailable || time.Now().After(deadline) || ctx.Err() != nil {
			return c, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}
