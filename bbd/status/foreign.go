package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"forebay/bbd/aside"
	"forebay/bbd/fate"
	"forebay/bbd/store"
)

// Foreign is memory, or disk, of another node or namespace that the daemon found
// in its folders. It is left as it is.
type Foreign struct {
	Path      string   `json:"path"`
	Tier      string   `json:"tier"`
	Bytes     int64    `json:"bytes"` // that this daemon cannot use
	Held      int64    `json:"held"`  // of them in segments, which may hold files
	Node      string   `json:"node"`
	Namespace string   `json:"namespace"` // its identity
	Buffers   []string `json:"buffers,omitempty"`
	Remedy    string   `json:"remedy"`
}

// OfForeign describes the regions of other owners to a daemon with an owner of its own.
func OfForeign(regions []store.ForeignRegion, own store.Owner) (list []Foreign) {
	for i := range regions {
		f := &regions[i]
		list = append(list, Foreign{
			Path: f.Path, Tier: f.Tier.String(), Bytes: f.Bytes, Held: f.Held, Node: f.Owner.Node,
			Namespace: fmt.Sprintf("%016x", f.Owner.Namespace), Buffers: f.Buffers, Remedy: foreignRemedy(f, own),
		})
	}
	return list
}

// foreignRemedy is the remedy for a region of another owner.
func foreignRemedy(f *store.ForeignRegion, own store.Owner) string {
	var how []string
	if f.Owner.Node != own.Node && !own.AnyNode {
		how = append(how, "as node "+f.Owner.Node)
	}
	if f.Owner.Namespace != own.Namespace {
		how = append(how, fmt.Sprintf("with the namespace that it was written with (nats.url, or the nats folder below state_dir), whose identity is %016x", f.Owner.Namespace))
	}
	return "start this daemon " + strings.Join(how, " and ") + " and drain it; or, if nothing of it is wanted, stop the daemon and delete the file"
}

// WithoutBuffer describes files in memory of a buffer that the namespace does not have. They are
// kept until the namespace has the buffer again, or the memory is deleted.
type WithoutBuffer struct {
	Buffer string `json:"buffer"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Remedy string `json:"remedy"`
}

// OfBufferless describes files whose buffers the namespace does not have, by buffer.
func OfBufferless(files map[string][]fate.Unexplained) (list []WithoutBuffer) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w := WithoutBuffer{
			Buffer: name, Files: len(files[name]),
			Remedy: "start the namespace's servers with the folder that has the buffer, and then this daemon; the log names the files",
		}
		for i := range files[name] {
			if files[name][i].Reason == fate.UnreadableRecord {
				w.Remedy = "start the release that made the buffer, or a newer one; the log names the records that this one cannot read"
			}
			w.Bytes += files[name][i].Bytes
		}
		list = append(list, w)
	}
	return list
}

// SetAside is a buffer whose namespace could not be read when the daemon started. Calls for it fail,
// and its files in memory stay, until the daemon starts again.
type SetAside struct {
	Buffer string `json:"buffer"`
	Files  int    `json:"files"` // in memory
	Bytes  int64  `json:"bytes"`
	Dirty  int64  `json:"dirty"` // of Bytes: without proof of being on the store
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// OfAside describes a buffer that was set aside.
func OfAside(b *aside.Buffer) SetAside {
	reason, remedy := b.Err.Why()
	return SetAside{Buffer: b.Spec.Name, Files: b.Files, Bytes: b.Bytes, Dirty: b.Dirty, Kind: b.Err.Kind.String(), Reason: reason, Remedy: remedy}
}
