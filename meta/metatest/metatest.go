// Package metatest makes changes to a namespace that only a fault can, for tests of its users. It
// depends on the names of package meta, and must never be part of a program.
package metatest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Forget removes the entries of names in a buffer's root from the server of a namespace. Nothing of
// them is left, nor a mark of a removal. The names are of letters and digits.
func Forget(ctx context.Context, server Server, buffer string, names ...string) error {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = "e.1." + name
	}
	return purge(ctx, server, "KV_forebay-"+buffer+"-", keys)
}

// ForgetBuffer removes the record of a buffer from the server of a namespace, as Forget does.
func ForgetBuffer(ctx context.Context, server Server, buffer string) error {
	return purge(ctx, server, "KV_forebay", []string{"buffer." + buffer})
}

// NewerBuffer stores the record of a buffer as a newer release may, in a format that this one does not read. Undo is to be
// called while its server runs, or the next one in its folder.
func NewerBuffer(ctx context.Context, server Server, buffer string) (undo func(context.Context, Server) error, err error) {
	var before []byte
	err = changeBuffer(ctx, server, buffer, func(record []byte) []byte {
		before = bytes.Clone(record)
		record = bytes.Clone(record)
		record[0] = 0x7f
		return record
	})
	return func(ctx context.Context, server Server) error {
		return changeBuffer(ctx, server, buffer, func([]byte) []byte { return before })
	}, err
}

// changeBuffer changes the record of a buffer.
func changeBuffer(ctx context.Context, server Server, buffer string, change func([]byte) []byte) error {
	nc, err := nats.Connect("", nats.InProcessServer(server))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	bucket, err := js.KeyValue(ctx, "forebay")
	if err != nil {
		return err
	}
	record, err := bucket.Get(ctx, "buffer."+buffer)
	if err != nil {
		return err
	}
	_, err = bucket.Put(ctx, "buffer."+buffer, change(record.Value()))
	return err
}

// Server is a server in this process.
type Server interface{ InProcessConn() (net.Conn, error) }

// purge purges keys of the first bucket with a stream's name that begins so.
func purge(ctx context.Context, server Server, prefix string, keys []string) error {
	nc, err := nats.Connect("", nats.InProcessServer(server))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	found := ""
	for stream := range js.StreamNames(ctx).Name() {
		if strings.HasPrefix(stream, prefix) && (found == "" || len(stream) < len(found)) {
			found = stream
		}
	}
	if found == "" {
		return fmt.Errorf("there is no stream %s", prefix)
	}
	s, err := js.Stream(ctx, found)
	for i := 0; i < len(keys) && err == nil; i++ {
		err = s.Purge(ctx, jetstream.WithPurgeSubject("$KV."+strings.TrimPrefix(found, "KV_")+"."+keys[i]))
	}
	return err
}
