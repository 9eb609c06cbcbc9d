// Package metatest does to a namespace what only a fault can, for tests of those who use
// one. It knows how package meta names things, and must never be part of a program.
package metatest

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Forget has the server of a namespace forget the entries of names in a buffer's root:
// nothing is left of them, no mark of a removal either. The names are of letters and digits.
func Forget(ctx context.Context, server interface{ InProcessConn() (net.Conn, error) }, buffer string, names ...string) error {
	nc, err := nats.Connect("", nats.InProcessServer(server))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for stream := range js.StreamNames(ctx).Name() {
		if !strings.HasPrefix(stream, "KV_forebay-"+buffer+"-") {
			continue
		}
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := s.Purge(ctx, jetstream.WithPurgeSubject("$KV."+strings.TrimPrefix(stream, "KV_")+".e.1."+name)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("there is no namespace of buffer %s", buffer)
}
