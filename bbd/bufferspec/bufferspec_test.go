package bufferspec

import (
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var spec bb.Buffer
	Complete(&spec, &wire.Buffer{KeepDefault: true}, now)
	if len(spec.NoFlush) == 0 || spec.Mode != 0o700 || spec.Durability != bb.DurabilityResident || spec.Existing != bb.ExistingKeep || spec.State != bb.BufferActive || !spec.Created.Equal(now) {
		t.Errorf("of an empty request: %+v", spec)
	}
	spec = bb.Buffer{Mode: 0o750, Durability: bb.DurabilityFlushed, Existing: bb.ExistingOverwrite}
	Complete(&spec, &wire.Buffer{}, now)
	if len(spec.NoFlush) > 0 || spec.Mode != 0o750 || spec.Durability != bb.DurabilityFlushed || spec.Existing != bb.ExistingOverwrite {
		t.Errorf("of a request that names all: %+v", spec)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	every5 := bb.FlushRules([]string{"step-*/=every 5"})
	for name, c := range map[string]struct {
		change func(*bb.Buffer)
		ok     bool
	}{
		"nothing more":                 {func(*bb.Buffer) {}, true},
		"no name":                      {func(b *bb.Buffer) { b.Name = "" }, false},
		"a negative capacity":          {func(b *bb.Buffer) { b.Capacity = -1 }, false},
		"a negative flush limit":       {func(b *bb.Buffer) { b.FlushLimit = -1 }, false},
		"a negative dirty age":         {func(b *bb.Buffer) { b.DirtyAge = -1 }, false},
		"an unknown durability":        {func(b *bb.Buffer) { b.Durability = "eternal" }, false},
		"flushed, without a store":     {func(b *bb.Buffer) { b.Durability = bb.DurabilityFlushed }, false},
		"flushed, with a store":        {func(b *bb.Buffer) { b.Durability, b.Backing = bb.DurabilityFlushed, "file:///store" }, true},
		"an unknown rule of existing":  {func(b *bb.Buffer) { b.Existing = "guess" }, false},
		"two copies":                   {func(b *bb.Buffer) { b.Replicas = 2 }, true},
		"three copies":                 {func(b *bb.Buffer) { b.Replicas = 3 }, false},
		"a set-uid bit":                {func(b *bb.Buffer) { b.Mode |= 1 << 23 }, false},
		"an owner without rights":      {func(b *bb.Buffer) { b.Mode = 0o070 }, false},
		"others with rights":           {func(b *bb.Buffer) { b.Mode = 0o755 }, true},
		"an unknown codec":             {func(b *bb.Buffer) { b.Codec = "magic" }, false},
		"a malformed pattern":          {func(b *bb.Buffer) { b.NoFlush = []string{"["} }, false},
		"a tier":                       {func(b *bb.Buffer) { b.Tiers = []bb.TierRule{{Pattern: "*.log", Tier: bb.TierDisk}} }, true},
		"an unknown tier":              {func(b *bb.Buffer) { b.Tiers = []bb.TierRule{{Pattern: "*.log", Tier: 7}} }, false},
		"a flush rule":                 {func(b *bb.Buffer) { b.Backing, b.Flush = "file:///store", every5 }, true},
		"a flush rule without a store": {func(b *bb.Buffer) { b.Flush = every5 }, false},
		"a flush rule, and closes that wait": {func(b *bb.Buffer) {
			b.Backing, b.Flush, b.Durability = "file:///store", every5, bb.DurabilityFlushed
		}, false},
		"a flush rule that cannot be read": {func(b *bb.Buffer) {
			b.Backing, b.Flush = "file:///store", bb.FlushRules([]string{"step-*/=often"})
		}, false},
		"second copies that there are not": {func(b *bb.Buffer) {
			b.Backing, b.Flush = "file:///store", bb.FlushRules([]string{"step-*/=when a second copy is gone"})
		}, false},
		"second copies": {func(b *bb.Buffer) {
			b.Backing, b.Replicas, b.Flush = "file:///store", 2, bb.FlushRules([]string{"step-*/=when a second copy is gone"})
		}, true},
		"too many flush rules": {func(b *bb.Buffer) {
			b.Backing, b.Flush = "file:///store", slices.Repeat(every5, bb.MaxFlushRules+1)
		}, false},
		"a store that is no URL": {func(b *bb.Buffer) { b.Backing = "::" }, false},
	} {
		spec := bb.Buffer{Name: "b"}
		Complete(&spec, &wire.Buffer{}, time.Now())
		c.change(&spec)
		if err := Check(&spec); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckWithoutDisk(t *testing.T) {
	t.Parallel()
	if err := CheckWithoutDisk([]bb.TierRule{{Pattern: "a", Tier: bb.TierMemory}}); err != nil {
		t.Error(err)
	}
	if err := CheckWithoutDisk([]bb.TierRule{{Pattern: "a"}, {Pattern: "b", Tier: bb.TierDisk}}); bb.KindOf(err) != bb.Unsupported {
		t.Error(err)
	}
}
