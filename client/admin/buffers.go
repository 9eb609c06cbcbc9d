package admin

import (
	"cmp"
	"context"
	"time"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Buffers and their settings.
type (
	// BufferSpec describes a buffer to create, or one that exists.
	BufferSpec = bb.Buffer
	// BufferState is a buffer's place in its lifetime.
	BufferState = bb.BufferState
	// Existing is the policy for files on the store that a buffer did not write.
	Existing = bb.Existing
	// Durability is the state that closing a file waits for.
	Durability = bb.Durability
	// TierRule places the files of a buffer that a pattern is about in a Tier.
	TierRule = bb.TierRule
	// FlushRule selects the steps of a series that are flushed. ParseFlushRule reads it.
	FlushRule = bb.FlushRule
	// Tier is where bytes lie, in memory or on the node's disk.
	Tier = bb.Tier
)

// The tiers.
const (
	TierMemory = bb.TierMemory
	TierDisk   = bb.TierDisk
)

// The rules for files on the store that a buffer did not write.
const (
	ExistingRefuse    = bb.ExistingRefuse
	ExistingKeep      = bb.ExistingKeep
	ExistingOverwrite = bb.ExistingOverwrite
)

// The durabilities and states of a buffer.
const (
	DurabilityResident = bb.DurabilityResident
	DurabilityFlushed  = bb.DurabilityFlushed
	BufferActive       = bb.BufferActive
	BufferOrphan       = bb.BufferOrphan
	BufferDestroying   = bb.BufferDestroying
)

// ParseFlushRule reads PATTERN/=CLAUSE[,CLAUSE…], as step-*/=every 5.
func ParseFlushRule(text string) (FlushRule, error) { return bb.ParseFlushRule(text) }

// CreateBuffer makes a buffer and returns it as the daemon completed it. A nil NoFlush means the
// default patterns, an empty one none. No Existing means ExistingKeep. Without Shared it is refused
// (Exists) if its store overlaps that of another buffer.
func CreateBuffer(ctx context.Context, c *client.Client, spec BufferSpec) (BufferSpec, error) {
	if err := bb.CheckBufferName(spec.Name); err != nil {
		return BufferSpec{}, err
	}
	var reply wire.Buffer
	if err := of(c).Ask(ctx, wire.Type_TYPE_BUFFER_CREATE, newBuffer(spec), &reply); err != nil {
		return BufferSpec{}, bb.Wrap("create buffer", spec.Name, err)
	}
	return reply.AsBuffer(), nil
}

// newBuffer makes the request for a new buffer.
func newBuffer(spec BufferSpec) *wire.Buffer {
	spec.Existing = cmp.Or(spec.Existing, ExistingKeep) // a daemon of an older release has another default
	m := wire.FromBuffer(&spec)
	m.KeepDefault = spec.NoFlush == nil
	return m
}

// Buffers lists the buffers that this user may see, by name.
func Buffers(ctx context.Context, c *client.Client) ([]BufferSpec, error) {
	var reply wire.Buffers
	if err := of(c).Ask(ctx, wire.Type_TYPE_BUFFER_LIST, &wire.Empty{}, &reply); err != nil {
		return nil, bb.Wrap("list buffers", "", err)
	}
	list := make([]BufferSpec, 0, len(reply.Buffers))
	for _, m := range reply.Buffers {
		list = append(list, m.AsBuffer())
	}
	return list, nil
}

// BufferInfo describes one buffer.
func BufferInfo(ctx context.Context, c *client.Client, name string) (BufferSpec, error) {
	if err := bb.CheckBufferName(name); err != nil {
		return BufferSpec{}, err
	}
	var reply wire.Buffer
	if err := of(c).Ask(ctx, wire.Type_TYPE_BUFFER_GET, &wire.BufferName{Name: name}, &reply); err != nil {
		return BufferSpec{}, bb.Wrap("buffer", name, err)
	}
	return reply.AsBuffer(), nil
}

// Token makes a token, as text. Its holder can use this buffer's files over TCP as the buffer's
// owner, until it expires. The buffer's owner and the system may make one. Keep it as secret as a
// key.
func Token(ctx context.Context, c *client.Client, buffer string, lifetime time.Duration) (text string, expires time.Time, err error) {
	if err := bb.CheckBufferName(buffer); err != nil {
		return "", time.Time{}, err
	}
	var reply wire.Token
	if err := of(c).Ask(ctx, wire.Type_TYPE_TOKEN, &wire.TokenRequest{Buffer: buffer, LifetimeNs: int64(lifetime)}, &reply); err != nil {
		return "", time.Time{}, bb.Wrap("token", buffer, err)
	}
	return wire.TokenText(reply.Token), time.Unix(0, reply.ExpiresNs), nil
}

// DestroyBuffer removes a buffer and all it holds. It fails with ErrBusy while anything in it is
// dirty. See DiscardBuffer.
func DestroyBuffer(ctx context.Context, c *client.Client, name string) error {
	return destroyBuffer(ctx, c, &wire.BufferDestroy{Name: name})
}

// DiscardBuffer removes a buffer and all it holds, with the dirty bytes, which are lost.
func DiscardBuffer(ctx context.Context, c *client.Client, name string) error {
	return destroyBuffer(ctx, c, &wire.BufferDestroy{Name: name, Discard: true})
}

// Rebuilt is RebuildBuffer's result for a buffer's files.
type Rebuilt struct {
	Served      bool  // the buffer was served already, so nothing was done
	Files       int64 // whose entries are made again from memory, or are newer there than in the log
	Directories int64 // that could be read of the damaged log, with their attributes
	Read        int64 // files whose entries could
	Aside       int64 // files below .lost+found
	Kept        int64 // files that stay in memory without an entry
	OnStore     int64 // files that the store alone has: StageIn brings them back
	Lost        int64 // files of which something is missing
	Links       int64 // symbolic links, FIFOs and sockets that could be read of the damaged log; nothing else has them
	Committed   int64 // transactions that were committed, and go on to get their files to their places
	Found       []RebuiltFile
}

// RebuiltFile is a file that is not as it was.
type RebuiltFile struct {
	Path   string // or its id, if the path is unknown
	Bytes  int64
	Became string // "aside", "kept", "on-store", "lost"; "not-replaced": files that a committed transaction was to replace may be there
	Reason string
}

// RebuildBuffer rebuilds the namespace of a buffer that was set aside, since its log is gone or damaged, from the
// daemon's memory and disk. The buffer is served when it returns. It may be repeated. If the
// namespace's server does not answer, the error is ErrUnavailable. If the buffer is set aside for
// another reason, it is ErrUnsupported. Then nothing is changed.
func RebuildBuffer(ctx context.Context, c *client.Client, name string) (Rebuilt, error) {
	if err := bb.CheckBufferName(name); err != nil {
		return Rebuilt{}, err
	}
	var m wire.BufferRebuilt
	if err := of(c).Ask(ctx, wire.Type_TYPE_BUFFER_REBUILD, &wire.BufferName{Name: name}, &m); err != nil {
		return Rebuilt{}, bb.Wrap("rebuild buffer", name, err)
	}
	r := Rebuilt{
		Served: m.Served, Files: m.Files, Directories: m.Directories, Read: m.Read, Aside: m.Aside, Kept: m.Kept, OnStore: m.OnStore, Lost: m.Lost,
		Links: m.Links, Committed: m.Committed,
	}
	for _, f := range m.Found {
		r.Found = append(r.Found, RebuiltFile{Path: f.Path, Bytes: f.Bytes, Became: f.Became, Reason: f.Reason})
	}
	return r, nil
}

func destroyBuffer(ctx context.Context, c *client.Client, m *wire.BufferDestroy) error {
	name := m.Name
	if err := bb.CheckBufferName(name); err != nil {
		return err
	}
	c.Buffer(name).ReturnLeases() // they are none for another buffer of its name
	return bb.Wrap("destroy buffer", name, of(c).Ask(ctx, wire.Type_TYPE_BUFFER_DESTROY, m, nil))
}
