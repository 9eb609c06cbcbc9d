// Package bufferspec completes and checks the record of a new buffer. It must never depend on the
// content of a store, nor on the other buffers.
package bufferspec

import (
	"cmp"
	"fmt"
	"io/fs"
	"time"

	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Complete sets the fields that the request for a new buffer leaves to the daemon, which makes it now. All of it is
// recorded. An absent value in a record has the meaning of the release that made it.
func Complete(spec *bb.Buffer, request *wire.Buffer, now time.Time) {
	spec.Created, spec.State = now, bb.BufferActive
	if request.KeepDefault {
		spec.NoFlush = bb.DefaultNoFlush()
	}
	if spec.Mode == 0 {
		spec.Mode = 0o700
	}
	spec.Durability = cmp.Or(spec.Durability, bb.DurabilityResident)
	spec.Existing = cmp.Or(spec.Existing, bb.ExistingKeep)
}

// Check returns the error of a buffer's record that is not allowed, from the record alone.
func Check(spec *bb.Buffer) error {
	if err := bb.CheckBufferName(spec.Name); err != nil {
		return err
	}
	bad := func(what string, value any, remedy string) error {
		return bb.E(bb.Invalid, what, fmt.Sprint(value), "is not allowed").WithRemedy(remedy)
	}
	switch {
	case spec.Capacity < 0:
		return bad("capacity", spec.Capacity, "give a size of 0 or more")
	case spec.FlushLimit < 0:
		return bad("flush limit", spec.FlushLimit, "give bytes a second, 0 for no limit")
	case spec.DirtyAge < 0:
		return bad("dirty age", spec.DirtyAge, "give a duration of 0 or more")
	case spec.Durability != bb.DurabilityResident && spec.Durability != bb.DurabilityFlushed:
		return bad("durability", spec.Durability, "use resident or flushed")
	case spec.Durability == bb.DurabilityFlushed && spec.Backing == "":
		return bb.E(bb.Invalid, "durability", string(spec.Durability), "needs a backing store").WithRemedy("give --backing")
	case spec.Existing != bb.ExistingOverwrite && !spec.Existing.Keeps():
		return bad("existing", spec.Existing, "use refuse, keep or overwrite")
	case spec.Replicas < 0 || spec.Replicas > 2:
		return bad("replicas", spec.Replicas, "give 1 or 2")
	case spec.Mode&^fs.ModePerm != 0:
		return bad("mode", spec.Mode, "give permission bits only")
	case spec.Mode&0o700 != 0o700: // its owner could neither change nor destroy it
		return bad("mode", fmt.Sprintf("%#o", spec.Mode), "leave its owner all rights: 0700, and the rights of others")
	}
	if err := codec.Check(spec.Codec); err != nil {
		return err
	}
	for _, p := range spec.NoFlush {
		if err := bb.CheckPattern(p); err != nil {
			return err
		}
	}
	for _, r := range spec.Tiers {
		if err := bb.CheckPattern(r.Pattern); err != nil {
			return err
		}
		if r.Tier > bb.TierDisk {
			return bad("tier", uint8(r.Tier), "use memory or disk")
		}
	}
	if err := checkFlush(spec); err != nil {
		return err
	}
	if spec.Backing != "" {
		_, err := bb.ParseBacking(spec.Backing)
		return err
	}
	return nil
}

func checkFlush(spec *bb.Buffer) error {
	if len(spec.Flush) == 0 {
		return nil
	}
	refused := func(reason, remedy string) error {
		return bb.E(bb.Invalid, "flush rule", fmt.Sprintf("%.200q", spec.Flush[0].String()), reason).WithRemedy(remedy)
	}
	switch {
	case len(spec.Flush) > bb.MaxFlushRules:
		return refused(fmt.Sprintf("a buffer has at most %d of them, not %d", bb.MaxFlushRules, len(spec.Flush)), "use patterns with wildcards")
	case spec.Backing == "":
		return refused("needs a backing store", "give --backing")
	case spec.Durability == bb.DurabilityFlushed:
		return refused("holds files back, and each close would wait for its flush", "use --durability resident")
	}
	for _, r := range spec.Flush {
		if err := r.Check(); err != nil {
			return err
		}
		if r.Copies && spec.Replicas < 2 {
			return refused("is about second copies, and the buffer has none", "give --replicas 2")
		}
	}
	return nil
}

// CheckWithoutDisk refuses rules for a disk tier, where no daemon has one, since their files would stay in memory.
func CheckWithoutDisk(rules []bb.TierRule) error {
	for _, r := range rules {
		if r.Tier == bb.TierDisk {
			return bb.E(bb.Unsupported, "tier", r.Pattern+"="+r.Tier.String(), "no daemon here has a disk tier").
				WithRemedy("leave the rule out; or set disk.dir, and start the daemon again")
		}
	}
	return nil
}
