package hostiletest

import (
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"forebay/internal/wire"
)

// messages are those of requests, by type.
var messages = map[wire.Type]proto.Message{
	wire.Type_TYPE_HELLO: &wire.Hello{}, wire.Type_TYPE_CANCEL: &wire.Cancel{}, wire.Type_TYPE_PROVE: &wire.Prove{},
	wire.Type_TYPE_STATUS: &wire.StatusRequest{}, wire.Type_TYPE_BUFFER_CREATE: &wire.Buffer{}, wire.Type_TYPE_BUFFER_GET: &wire.BufferName{},
	wire.Type_TYPE_BUFFER_LIST: &wire.Empty{}, wire.Type_TYPE_STAT: &wire.PathRequest{}, wire.Type_TYPE_LIST: &wire.ListRequest{},
	wire.Type_TYPE_MKDIR: &wire.Mkdir{}, wire.Type_TYPE_RENAME: &wire.Rename{}, wire.Type_TYPE_EXCHANGE: &wire.ExchangeNames{}, wire.Type_TYPE_REMOVE: &wire.Remove{},
	wire.Type_TYPE_SETATTR: &wire.SetAttr{}, wire.Type_TYPE_SET_XATTR: &wire.SetXattr{}, wire.Type_TYPE_XATTRS: &wire.PathRequest{}, wire.Type_TYPE_LOST: &wire.BufferName{}, wire.Type_TYPE_OPEN: &wire.Open{},
	wire.Type_TYPE_COMMIT: &wire.Commit{}, wire.Type_TYPE_EXTENTS: &wire.ExtentsRequest{}, wire.Type_TYPE_CLOSE: &wire.Close{},
	wire.Type_TYPE_UNPIN: &wire.Unpin{}, wire.Type_TYPE_LEASE: &wire.LeaseRequest{}, wire.Type_TYPE_RETURN: &wire.ReturnLease{},
	wire.Type_TYPE_DRAIN: &wire.Drain{}, wire.Type_TYPE_STAGE_IN: &wire.Stage{}, wire.Type_TYPE_STAGE_OUT: &wire.Stage{},
	wire.Type_TYPE_VERIFY: &wire.Verify{}, wire.Type_TYPE_RECEIPT: &wire.BufferName{}, wire.Type_TYPE_NODES: &wire.Empty{},
	wire.Type_TYPE_NODE_DRAIN: &wire.NodeDrain{}, wire.Type_TYPE_NODE_FORGET: &wire.NodeName{}, wire.Type_TYPE_TOKEN: &wire.TokenRequest{},
	wire.Type_TYPE_JOBS: &wire.Empty{}, wire.Type_TYPE_JOB: &wire.JobRequest{}, wire.Type_TYPE_JOB_CANCEL: &wire.JobRequest{},
	wire.Type_TYPE_LIFETIME_OPEN: &wire.LifetimeOpen{}, wire.Type_TYPE_LIFETIME_LEAVE: &wire.LifetimeLeave{},
	wire.Type_TYPE_LIFETIME_END: &wire.LifetimeEnd{}, wire.Type_TYPE_LIFETIME_DUE: &wire.LifetimeDue{}, wire.Type_TYPE_LIFETIMES: &wire.Lifetimes{},
	wire.Type_TYPE_TXN_BEGIN: &wire.TxnBegin{}, wire.Type_TYPE_TXN_ADOPT: &wire.TxnAdopt{}, wire.Type_TYPE_TXN_COMMIT: &wire.TxnCommit{},
	wire.Type_TYPE_TXN_ABORT: &wire.TxnName{}, wire.Type_TYPE_TXN_GET: &wire.TxnName{}, wire.Type_TYPE_TXN_LIST: &wire.BufferName{},
	wire.Type_TYPE_TAKE: &wire.Take{}, wire.Type_TYPE_DISCARD: &wire.Discard{}, wire.Type_TYPE_REPLICATE: &wire.Replicate{},
	wire.Type_TYPE_BUFFER_DESTROY: &wire.BufferDestroy{}, wire.Type_TYPE_TXN_RENEW: &wire.TxnName{}, wire.Type_TYPE_NODE_UNDRAIN: &wire.NodeName{},
	wire.Type_TYPE_NODE_LOSS: &wire.NodeName{}, wire.Type_TYPE_HOLD: &wire.Hold{}, wire.Type_TYPE_SUBSCRIBE: &wire.Subscribe{},
	wire.Type_TYPE_RECHECK: &wire.Recheck{}, wire.Type_TYPE_PLACE_RENAME: &wire.PlaceRename{}, wire.Type_TYPE_PLACE_REMOVE: &wire.PlaceRemove{},
	wire.Type_TYPE_NAMES: &wire.Names{},
}

var (
	badWords = []string{
		"", "/", "a", "b/c", "..", "../x", "a//b", "/etc/passwd", "\x00", "x\ny", strings.Repeat("n", 300), strings.Repeat("d/", 2000), ".forebay", ".bb",
		"file:///etc", "s3://b/p?endpoint=http://127.0.0.1:1&path_style=true", "file://../x", "s3://", "%s%n", "{", "flushed", "resident", "zstd", "lz4", "*", "[", "**",
	}
	badNumbers = []uint64{0, 1, 2, 3, 5, 8, 16, 4096, 1 << 20, 4<<20 + 1, 1 << 31, 1<<31 - 1, 1 << 32, 1 << 62, 1 << 63, 1<<63 - 1, 1<<64 - 1, 0o777, 0o7777}
	badJSON    = []string{"{}", "[", `{"key":"../../x","job":"1","uid":0}`, `{"key":"k","uid":5002,"in":[{"url":"file:///etc/shadow"}]}`, "null", strings.Repeat("[", 20000)}
)

// fill gives a message's fields values that are possible and wrong.
func fill(rnd *rand.Rand, m protoreflect.Message, buffer string, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch message := field.Kind() == protoreflect.MessageKind; {
		case rnd.IntN(4) == 0 || field.IsMap() || message && depth > 2:
		case field.IsList():
			list := m.Mutable(field).List()
			for range rnd.IntN(4) {
				if message {
					e := list.NewElement()
					fill(rnd, e.Message(), buffer, depth+1)
					list.Append(e)
				} else {
					list.Append(badValue(rnd, field, buffer))
				}
			}
		case message:
			fill(rnd, m.Mutable(field).Message(), buffer, depth+1)
		default:
			m.Set(field, badValue(rnd, field, buffer))
		}
	}
}

func badValue(rnd *rand.Rand, field protoreflect.FieldDescriptor, buffer string) protoreflect.Value {
	n := badNumbers[rnd.IntN(len(badNumbers))]
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 == 1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if slices.Contains([]protoreflect.Name{"handle", "lease", "id"}, field.Name()) {
			n = uint64(rnd.IntN(6))
		}
		return protoreflect.ValueOfUint64(n)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.StringKind:
		if slices.Contains([]protoreflect.Name{"buffer", "name"}, field.Name()) && rnd.IntN(5) > 0 {
			return protoreflect.ValueOfString(buffer)
		}
		return protoreflect.ValueOfString(badWords[rnd.IntN(len(badWords))])
	case protoreflect.BytesKind:
		if field.Name() == "json" {
			return protoreflect.ValueOfBytes([]byte(badJSON[rnd.IntN(len(badJSON))]))
		}
		return protoreflect.ValueOfBytes(make([]byte, []int{0, 1, 16, 32, 4096}[rnd.IntN(5)]))
	}
	return field.Default()
}

// BadRequest returns a request whose message is well-formed and whose values are wrong, or another
// request's. Many name a buffer.
func BadRequest(rnd *rand.Rand, buffer string) (typ wire.Type, m proto.Message, data []byte) {
	types := slices.Sorted(maps.Keys(messages))
	typ = types[rnd.IntN(len(types))]
	filled := messages[typ].ProtoReflect().New()
	fill(rnd, filled, buffer, 0)
	if rnd.IntN(3) == 0 {
		typ = types[rnd.IntN(len(types))] // another's message
	}
	if rnd.IntN(4) == 0 {
		data = make([]byte, []int{1, 100, 4096, 65536}[rnd.IntN(4)])
	}
	return typ, filled.Interface(), data
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BadFrame returns noise, or a frame of which something is right.
func BadFrame(rnd *rand.Rand) []byte {
	b := make([]byte, wire.HeaderSize+rnd.IntN(200))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	size := uint32(len(b) - wire.HeaderSize)
	switch rnd.IntN(6) {
	case 0: // of a great length
		le.PutUint32(b, []uint32{1 << 20, 1<<20 + 1, 1<<32 - 1, 1 << 31}[rnd.IntN(4)])
		le.PutUint32(b[4:], []uint32{4 << 20, 4<<20 + 1, 1<<32 - 1}[rnd.IntN(3)])
	case 1: // with its checksum, of a message that is none
		le.PutUint32(b, size)
		le.PutUint32(b[4:], uint32(rnd.IntN(2)*rnd.IntN(4<<20)))
		le.PutUint16(b[16:], uint16(rnd.IntN(80)))
		le.PutUint32(b[20:], crc32.Update(crc32.Checksum(b[:20], castagnoli), castagnoli, b[wire.HeaderSize:]))
	case 2:
		b = b[:rnd.IntN(wire.HeaderSize)]
	case 3:
		b = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	case 4: // whole but for its checksum
		le.PutUint32(b, size)
		le.PutUint32(b[4:], 0)
	}
	return b
}
