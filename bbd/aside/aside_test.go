package aside

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"forebay/bbd/access"
	"forebay/internal/bb"
)

// namespace is the record of a buffer, and the dropped files.
type namespace struct {
	now     *bb.Buffer
	dropped int
}

func (n *namespace) list(t *testing.T) *List {
	return New(Options{
		Context: t.Context(), DamageNotes: DamageNotes{t.TempDir()}, Emit: func(bb.Event) {}, Log: slog.New(slog.DiscardHandler),
		Buffer: func(context.Context, string) (bb.Buffer, error) {
			if n.now == nil {
				return bb.Buffer{}, bb.NotFound
			}
			return *n.now, nil
		},
		DestroyBuffer: func(context.Context, string) error { n.now = nil; return nil },
		Lock:          func(context.Context, string) (func(), error) { return func() {}, nil },
		Drop:          func(string) { n.dropped++ },
		Rebuilds:      func(err error) bool { return bb.KindOf(err) == bb.Lost },
	})
}

// When a buffer that was set aside has been destroyed, it goes, and the note with it. A buffer of its
// name that came before or after is another one.
func TestSuccession(t *testing.T) {
	t.Parallel()
	at := func(second int64) *bb.Buffer { return &bb.Buffer{Name: "b", UID: 7, Created: time.Unix(second, 0)} }
	owner, other := &access.Caller{UID: 7}, &access.Caller{UID: 8}
	for name, c := range map[string]struct {
		now  *bb.Buffer // in the namespace
		do   func(*List) error
		kind bb.Kind // of its error
		gone bool    // from the list
		left bool    // in the namespace
	}{
		"destroyed by its owner":             {at(5), func(l *List) error { return l.Destroy(t.Context(), owner, at(5)) }, 0, true, false},
		"destroyed by another user":          {at(5), func(l *List) error { return l.Destroy(t.Context(), other, at(5)) }, bb.Permission, false, true},
		"destroyed, gone from the namespace": {nil, func(l *List) error { return l.Destroy(t.Context(), owner, at(5)) }, 0, true, false},
		"destroyed, another has its name":    {at(6), func(l *List) error { return l.Destroy(t.Context(), owner, at(5)) }, bb.NotFound, false, true},
		"another one destroyed":              {at(4), func(l *List) error { return l.Destroy(t.Context(), owner, at(4)) }, bb.NotFound, false, true},
		"a change of its record":             {at(5), func(l *List) error { l.Changed("b", at(5)); return nil }, 0, false, true},
		"an old change":                      {at(5), func(l *List) error { l.Changed("b", at(4)); return nil }, 0, false, true},
		"its successor":                      {at(6), func(l *List) error { l.Changed("b", at(6)); return nil }, 0, true, true},
		"its end":                            {nil, func(l *List) error { l.Changed("b", nil); return nil }, 0, true, false},
		"an old end":                         {at(5), func(l *List) error { l.Changed("b", nil); return nil }, 0, false, true},
	} {
		n := &namespace{now: c.now}
		l := n.list(t)
		if err := l.Put(*at(5), nil, "damage", bb.Lost); err != nil {
			t.Fatal(err)
		}
		err := c.do(l)
		if c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want kind %v", name, err, c.kind)
		}
		_, kept := l.Find("b")
		if noted := l.DamageNotes().Of(at(5)) != ""; kept == c.gone || noted == c.gone || n.dropped > 0 != c.gone || (n.now != nil) != c.left {
			t.Errorf("%s: kept %v, noted %v, dropped %d, left %v", name, kept, noted, n.dropped, n.now)
		}
	}
}

// A note is of one buffer, and one that cannot be read is one.
func TestDamageNotes(t *testing.T) {
	t.Parallel()
	d := DamageNotes{t.TempDir() + "/aside"}
	one, next := &bb.Buffer{Name: "b", Created: time.Unix(5, 0)}, &bb.Buffer{Name: "b", Created: time.Unix(6, 0)}
	if why := d.Of(one); why != "" || d.Forget(one) != nil {
		t.Errorf("nothing was noted: %q", why)
	}
	if err := d.Note(one, "why"); err != nil {
		t.Fatal(err)
	}
	if d.Of(one) != "why" || d.Of(next) != "" {
		t.Errorf("noted %q, of the next one %q", d.Of(one), d.Of(next))
	}
	if err := os.Truncate(d.file(one), 0); err != nil {
		t.Fatal(err)
	}
	if d.Of(one) == "" {
		t.Error("a torn note is none")
	}
	if err := d.Forget(one); err != nil || d.Of(one) != "" {
		t.Errorf("forgotten: %v, %q", err, d.Of(one))
	}
}
