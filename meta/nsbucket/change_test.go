package nsbucket

import (
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

func TestMarkLeftByACrash(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		for i, use := range []func(*testing.T, bb.Entry) error{
			func(t *testing.T, d bb.Entry) error { _, err := ns.Create(ctx, file(ns, d.Dir, "f")); return err },
			func(t *testing.T, d bb.Entry) error {
				_, err := ns.Mkdir(ctx, d.Dir, "f", namespace.Owner{})
				return err
			},
			func(t *testing.T, d bb.Entry) error {
				create(t, ns, bb.RootDir, "from")
				_, err := ns.Rename(ctx, bb.RootDir, "from", d.Dir, "f", namespace.RenameOptions{})
				return err
			},
		} {
			name := string(rune('a' + i))
			d := mkdir(t, ns, bb.RootDir, name)
			if _, err := ns.markEmpty(ctx, "remove", &d); err != nil {
				t.Fatal(err)
			}
			if err := use(t, d); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			_, err := ns.Remove(ctx, bb.RootDir, name, namespace.RemoveOptions{})
			metatest.WantKind(t, "remove after use", err, bb.NotEmpty)
		}
	})
}
