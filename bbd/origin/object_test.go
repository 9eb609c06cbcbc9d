package origin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// verified is a Place that compares the bytes with those of the file.
func verified(content []byte) Place {
	return func(_ context.Context, r Run, from io.Reader) error {
		p := make([]byte, r.Size())
		if _, err := io.ReadFull(from, p); err != nil {
			return err
		}
		if !bytes.Equal(p, content[r.From:r.To]) {
			return bb.Checksum
		}
		return nil
	}
}

// TestObjectGoesOn: reads that follow each other are of one stream, and one that goes back is not.
func TestObjectGoesOn(t *testing.T) {
	p, e := file(10 << 20)
	o := p.object(t, e)
	defer o.Close()
	for _, step := range []struct {
		run   Run
		opens int
	}{
		{Run{0, 1000}, 1},
		{Run{1000, 2000}, 1},
		{Run{3 << 20, 4 << 20}, 1},     // skips less than an extent
		{Run{9 << 20, 10 << 20}, 2},    // skips more
		{Run{9<<20 + 1, 9<<20 + 2}, 3}, // goes back
	} {
		if err := o.Read(t.Context(), []Run{step.run}, verified(p.objects["f"])); err != nil || len(p.opened) != step.opens {
			t.Errorf("%v: opened %d times, not %d: %v", step.run, len(p.opened), step.opens, err)
		}
	}
}

// TestObjectReplaced: bytes that are not the file's are read from an object opened anew, once. An
// untrusted name is looked up among those from before renames.
func TestObjectReplaced(t *testing.T) {
	for name, change := range map[string]func(p *places){
		"replaced": func(*places) {},
		"another's, as long": func(p *places) {
			p.objects["was"], p.objects["f"] = p.objects["f"], make([]byte, len(p.objects["f"]))
			p.former["f"] = []string{"was"}
		},
		"another's, and shorter": func(p *places) {
			p.objects["was"], p.objects["f"] = p.objects["f"], p.objects["f"][:10]
			p.former["f"] = []string{"was"}
		},
		"not there yet": func(p *places) {
			p.objects["was"], p.objects["f"] = p.objects["f"], nil
			p.former["f"] = []string{"was"}
		},
		"not there yet, and nobody renames it": func(p *places) {
			p.objects["was"], p.objects["f"] = p.objects["f"], nil
			p.former["f"], p.away = []string{"before", "was"}, "n3"
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, e := file(1 << 20)
			content := p.objects["f"]
			o := p.object(t, e)
			defer o.Close()
			if name == "replaced" {
				p.objects["f"] = make([]byte, len(content))
				if err := o.Read(t.Context(), []Run{{0, 10}}, func(_ context.Context, _ Run, from io.Reader) error {
					_, err := io.ReadFull(from, make([]byte, 10))
					return err
				}); err != nil {
					t.Fatal(err)
				}
				p.objects["f"] = content
			}
			change(p)
			if err := o.Read(t.Context(), []Run{{100, 1000}, {1000, 2000}}, verified(content)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestObjectMissing names the remedy where an object cannot be read.
func TestObjectMissing(t *testing.T) {
	p, e := file(1000)
	p.objects["f"] = nil
	read := func() error {
		o := p.object(t, e)
		defer o.Close()
		return o.Read(t.Context(), []Run{{0, 1000}}, verified(make([]byte, 1000)))
	}
	if err := read(); !errors.Is(err, bb.NotFound) || !slices.Equal(p.opened, []string{"f", "f"}) {
		t.Errorf("nothing there: %v, after %v", err, p.opened)
	}
	p.former["f"], p.away = []string{"was"}, "n3"
	if away := (*bb.Error)(nil); !errors.As(read(), &away) || away.Kind != bb.Unavailable || away.Remedy == "" {
		t.Errorf("a daemon that has to rename is away: %v", away)
	}
	p.objects["was"], p.away, e.Size = []byte{}, "", 0
	o := p.object(t, e)
	if err := o.Read(t.Context(), []Run{{0, 0}}, verified(nil)); err != nil {
		t.Errorf("an empty file renamed meanwhile: %v", err)
	}
	delete(p.objects, "f")
	delete(p.objects, "was")
	if err := p.object(t, e).Read(t.Context(), []Run{{0, 0}}, verified(nil)); !errors.Is(err, bb.NotFound) {
		t.Errorf("an empty file without an object: %v", err)
	}
}

// TestObjectLayout: the extents cover the file with the checksums of its bytes, and an object that is not
// the file's has none.
func TestObjectLayout(t *testing.T) {
	p, e := file(9<<20 + 5)
	extents, err := p.object(t, e).Layout(t.Context())
	if err != nil || len(extents) != 3 {
		t.Fatalf("%d extents: %v", len(extents), err)
	}
	at := int64(0)
	for _, x := range extents {
		if x.FileOffset != at || x.Checksum != checksum.Sum(p.objects["f"][at:at+x.Length]) {
			t.Errorf("%+v does not go on at %d, or has another checksum", x, at)
		}
		at += x.Length
	}
	if at != e.Size {
		t.Errorf("%d of %d bytes", at, e.Size)
	}
	e.Checksum++
	p.opened = nil
	if _, err := p.object(t, e).Layout(t.Context()); bb.KindOf(err) != bb.Checksum || len(p.opened) != 2 {
		t.Errorf("%v after %v", err, p.opened)
	}
}
