package protocol

import (
	"bytes"
	"os"
	"testing"
	"time"

	"forebay/flusher/backing"
)

func FuzzDecode(f *testing.F) {
	all := Message{
		Call: 1, Op: OpReply, Flags: FlagAttrs | FlagError | FlagEOF, Store: 2, Handle: 3, Off: -1, N: 1 << 40, Slot: NoSlot,
		Name: "a/b", Text: "x", Attrs: backing.Attrs{Mode: 0o644, UID: 1, GID: 2, MTime: time.Unix(1, 2)},
		Err: RemoteError{Kind: 1, Op: "put", Path: "p", Reason: "r", Remedy: "m", Errno: 2}, Data: []byte("data"),
		Items: []Item{{Name: "n", ETag: "e", Size: 4, Mode: os.ModeDir | 0o755, Flags: ItemHasMode}}, Names: []string{"x", "y"},
	}
	f.Add(all.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Message
		if m.Decode(b) != nil {
			return
		}
		encoded := m.Append(nil)
		if err := again.Decode(encoded); err != nil || !bytes.Equal(again.Append(nil), encoded) {
			t.Fatalf("%+v\n%+v\n%v", m, again, err)
		}
		_ = m.Failure()
	})
}
