package hostiletest

import (
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
	wire.Type_TYPE_MKDIR: &wire.Mkdir{}, wire.Type_TYPE_RENAME: &wire.Rename{}, wire.Type_TYPE_REMOVE: &wire.Remove{},
	wire.Type_TYPE_SETATTR: &wire.SetAttr{}, wire.Type_TYPE_LOST: &wire.BufferName{}, wire.Type_TYPE_OPEN: &wire.Open{},
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
	wire.Type_TYPE_RECHECK: &wire.Recheck{}, wire.Type_TYPE_PLACE_RENAME: &wire.PlaceRename{}, wire.Type_TYPE_PLACE_REMOVE: &wire.PlaceRemove{},
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
func fill(m protoreflect.Message, buffer string, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch message := field.Kind() == protoreflect.MessageKind; {
		case rand.IntN(4) == 0 || field.IsMap() || message && depth > 2:
		case field.IsList():
			list := m.Mutable(field).List()
			for range rand.IntN(4) {
				if message {
					e := list.NewElement()
					fill(e.Message(), buffer, depth+1)
					list.Append(e)
				} else {
					list.Append(badValue(field, buffer))
				}
			}
		case message:
			fill(m.Mutable(field).Message(), buffer, depth+1)
		default:
			m.Set(field, badValue(field, buffer))
		}
	}
}

func badValue(field protoreflect.FieldDescriptor, buffer string) protoreflect.Value {
	n := badNumbers[rand.IntN(len(badNumbers))]
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 == 1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if slices.Contains([]protoreflect.Name{"handle", "lease", "id"}, field.Name()) {
			n = uint64(rand.IntN(6))
		}
		return protoreflect.ValueOfUint64(n)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.StringKind:
		if slices.Contains([]protoreflect.Name{"buffer", "name"}, field.Name()) && rand.IntN(5) > 0 {
			return protoreflect.ValueOfString(buffer)
		}
		return protoreflect.ValueOfString(badWords[rand.IntN(len(badWords))])
	case protoreflect.BytesKind:
		if field.Name() == "json" {
			return protoreflect.ValueOfBytes([]byte(badJSON[rand.IntN(len(badJSON))]))
		}
		return protoreflect.ValueOfBytes(make([]byte, []int{0, 1, 16, 32, 4096}[rand.IntN(5)]))
	}
	return field.Default()
}

// BadRequest returns a request whose message is well-formed and whose values are wrong, or another
// request's. Many name a buffer.
func BadRequest(buffer string) (typ wire.Type, m proto.Message, data []byte) {
	types := slices.Collect(maps.Keys(messages))
	typ = types[rand.IntN(len(types))]
	filled := messages[typ].ProtoReflect().New()
	fill(filled, buffer, 0)
	if rand.IntN(3) == 0 {
		typ = types[rand.IntN(len(types))] // another's message
	}
	if rand.IntN(4) == 0 {
		data = make([]byte, []int{1, 100, 4096, 65536}[rand.IntN(4)])
	}
	return typ, filled.Interface(), data
}
