package rpc

import (
	"google.golang.org/protobuf/proto"

	"forebay/internal/wire"
)

// fitted returns a message that a frame can hold. Lists of names in a Progress are examples
// beside totals. If names are long, there are fewer. Everything else is as it was.
func fitted(m proto.Message) proto.Message {
	p, ok := m.(*wire.Progress)
	if !ok || proto.Size(p) <= wire.MaxMessage {
		return m
	}
	short := proto.Clone(p).(*wire.Progress)
	for proto.Size(short) > wire.MaxMessage && len(short.Failed)+len(short.Held)+len(short.Open)+len(short.Superseded) > 0 {
		short.Failed = short.Failed[:len(short.Failed)/2]
		short.Held = short.Held[:len(short.Held)/2]
		short.Open = short.Open[:len(short.Open)/2]
		short.Superseded = short.Superseded[:len(short.Superseded)/2]
	}
	return short
}
