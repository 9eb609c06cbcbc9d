package overlap

import (
	"errors"
	"strings"
	"testing"

	"forebay/bbd/access"
	"forebay/internal/bb"
)

func TestOf(t *testing.T) {
	const keep, overwrite = bb.ExistingKeep, bb.ExistingOverwrite
	buffer := func(change func(*bb.Buffer)) bb.Buffer {
		b := bb.Buffer{Name: "other", Backing: "file:///s/a", UID: 7, Existing: keep, State: bb.BufferActive}
		change(&b)
		return b
	}
	job := func(name string, uid uint32, existing bb.Existing) func(*bb.Buffer) {
		return func(b *bb.Buffer) { b.Name, b.Job, b.UID, b.Existing = name, name, uid, existing }
	}
	for name, c := range map[string]struct {
		spec, other func(*bb.Buffer)
		want        bool
	}{
		"the same store":              {func(*bb.Buffer) {}, func(*bb.Buffer) {}, true},
		"below":                       {func(b *bb.Buffer) { b.Backing = "file:///s/a/b" }, func(*bb.Buffer) {}, true},
		"above":                       {func(b *bb.Buffer) { b.Backing = "file:///s" }, func(*bb.Buffer) {}, true},
		"beside":                      {func(b *bb.Buffer) { b.Backing = "file:///s/ab" }, func(*bb.Buffer) {}, false},
		"scratch":                     {func(b *bb.Buffer) { b.Backing = "" }, func(*bb.Buffer) {}, false},
		"beside scratch":              {func(*bb.Buffer) {}, func(b *bb.Buffer) { b.Backing = "" }, false},
		"two without a store":         {func(b *bb.Buffer) { b.Backing = "" }, func(b *bb.Buffer) { b.Backing = "" }, false},
		"its own record":              {func(b *bb.Buffer) { b.Name = "other" }, func(*bb.Buffer) {}, false},
		"being destroyed":             {func(*bb.Buffer) {}, func(b *bb.Buffer) { b.State = bb.BufferDestroying }, false},
		"an orphan":                   {func(*bb.Buffer) {}, func(b *bb.Buffer) { b.State = bb.BufferOrphan }, true},
		"one directory, two paths":    {func(b *bb.Buffer) { b.Backing, b.BackingID = "file:///link", "1" }, func(b *bb.Buffer) { b.BackingID = "1" }, true},
		"two directories":             {func(b *bb.Buffer) { b.Backing, b.BackingID = "file:///link", "1" }, func(b *bb.Buffer) { b.BackingID = "2" }, false},
		"a chain of jobs":             {job("j2", 7, keep), job("j1", 7, keep), false},
		"a chain that refuses files":  {job("j2", 7, bb.ExistingRefuse), job("j1", 7, keep), false},
		"a chain with an orphan":      {job("j2", 7, keep), func(b *bb.Buffer) { job("j1", 7, keep)(b); b.State = bb.BufferOrphan }, false},
		"the next job overwrites":     {job("j2", 7, overwrite), job("j1", 7, keep), true},
		"the earlier job overwrites":  {job("j2", 7, keep), job("j1", 7, overwrite), true},
		"jobs of two users":           {job("j2", 8, keep), job("j1", 7, keep), true},
		"a job beside a plain buffer": {job("j2", 7, keep), func(*bb.Buffer) {}, true},
		"a plain buffer beside a job": {func(*bb.Buffer) {}, job("j1", 7, keep), true},
	} {
		spec, other := buffer(func(b *bb.Buffer) { b.Name = "new" }), buffer(c.other)
		c.spec(&spec)
		if got := Of(&spec, &other); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestRefusal: the other buffer is named to users with the right to enter it, and to no others.
func TestRefusal(t *testing.T) {
	spec := bb.Buffer{Name: "new", Backing: "file:///s/a"}
	other := bb.Buffer{Name: "hidden", Backing: "file:///s/a/b", UID: 7, GID: 70, Mode: 0o710}
	for name, c := range map[string]struct {
		cred access.Caller
		want bool
	}{
		"the owner": {access.Of(7, 1), true}, "the group": {access.Of(8, 70), true}, "another": {access.Of(8, 8), false}, "the system": {access.Daemon(), true},
	} {
		err := Refusal(c.cred, &spec, &other)
		if named := strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "/a/b"); named != c.want || bb.KindOf(err) != bb.Exists {
			t.Errorf("to %s: %v", name, err)
		}
		if e, ok := errors.AsType[*bb.Error](err); !ok || !strings.Contains(e.Remedy, "--shared") {
			t.Errorf("to %s: without a remedy: %v", name, err)
		}
	}
}
