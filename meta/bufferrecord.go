package meta

import (
	"cmp"
	"fmt"
	"io/fs"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
)

// keptIn is the place of the namespace of a buffer.
type keptIn struct {
	id     uint64 // part of the name of its bucket or log; never used again
	engine Engine
}

func sealBuffer(key string, b *bb.Buffer, in keptIn) ([]byte, error) {
	format := byte(kv.FormatFirst)
	switch {
	case in.engine == EngineLog:
		format = kv.FormatThird
	case b.Replicas > 1:
		format = kv.FormatSecond
	}
	return kv.SealAs(format, key, kv.WithRest(&metapb.Buffer{
		Name: b.Name, Uid: b.UID, Gid: b.GID, Mode: uint32(b.Mode.Perm()), Capacity: b.Capacity, Backing: b.Backing,
		Durability: string(b.Durability), Codec: b.Codec, Keep: b.NoFlush, FlushLimit: b.FlushLimit, DirtyAge: int64(b.DirtyAge),
		NoWait: b.NoWait, Receipt: b.Receipt, Job: b.Job, Created: kv.Nanos(b.Created), State: string(b.State), Bucket: in.id, Replicas: uint32(b.Replicas),
		Tiers: tierRules(b.Tiers), BackingId: b.BackingID, Existing: string(b.Existing), Engine: string(in.engine),
		Flush: bb.FlushRuleTexts(b.Flush),
	}, b.Rest))
}

func tierRules(rules []bb.TierRule) (list []*metapb.TierRule) {
	for _, r := range rules {
		list = append(list, &metapb.TierRule{Pattern: r.Pattern, Tier: uint32(r.Tier)})
	}
	return list
}

func openBuffer(key string, data []byte, seq uint64) (bb.Buffer, keptIn, error) {
	var m metapb.Buffer
	if err := kv.Open(key, data, &m); err != nil {
		return bb.Buffer{}, keptIn{}, err
	}
	b := bb.Buffer{
		Name: m.GetName(), UID: m.GetUid(), GID: m.GetGid(), Mode: fs.FileMode(m.GetMode()).Perm(), Capacity: m.GetCapacity(),
		Backing: m.GetBacking(), Durability: bb.Durability(m.GetDurability()), Codec: m.GetCodec(), NoFlush: m.GetKeep(),
		FlushLimit: m.GetFlushLimit(), DirtyAge: time.Duration(m.GetDirtyAge()), NoWait: m.GetNoWait(), Receipt: m.GetReceipt(),
		Job: m.GetJob(), Created: kv.FromNanos(m.Created), State: bb.BufferState(m.GetState()), Revision: seq, Replicas: int(m.GetReplicas()),
		BackingID: m.GetBackingId(), Rest: kv.Rest(&m),
		Existing: cmp.Or(bb.Existing(m.GetExisting()), bb.ExistingOverwrite), // of a release without a choice, or with that default
	}
	for _, r := range m.GetTiers() {
		if r.GetTier() > uint32(bb.TierDisk) {
			continue // a tier of a newer release; these files are in memory here
		}
		b.Tiers = append(b.Tiers, bb.TierRule{Pattern: r.GetPattern(), Tier: bb.Tier(r.GetTier())})
	}
	for _, r := range bb.FlushRules(m.GetFlush()) {
		if r.Check() == nil { // else of a newer release; these files are flushed as others are here
			b.Flush = append(b.Flush, r)
		}
	}
	if b.Replicas > maxReplicas {
		return bb.Buffer{}, keptIn{}, bb.E(bb.Checksum, "decode", key, fmt.Sprintf("has %d replicas", b.Replicas))
	}
	in := keptIn{m.GetBucket(), cmp.Or(Engine(m.GetEngine()), EngineBuckets)}
	if in.engine != EngineBuckets && in.engine != EngineLog {
		return bb.Buffer{}, keptIn{}, bb.E(bb.Unsupported, "decode", key, fmt.Sprintf("its namespace has the engine %q", in.engine)).
			WithRemedy("use the release that wrote it, or a newer one")
	}
	if bufferKey(b.Name) != key || bb.CheckBufferName(b.Name) != nil {
		return bb.Buffer{}, keptIn{}, bb.E(bb.Checksum, "decode", key, "the record is of another buffer")
	}
	return b, in, nil
}
