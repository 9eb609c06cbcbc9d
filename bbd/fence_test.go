package bbd_test

import (
	"testing"
	"time"

	"forebay/client"
)

// TestClusterRecover: a file whose writer was declared gone holds its committed bytes, and none of
// its later ones, whether it detected that or its connection broke meanwhile.
func TestClusterRecover(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	lossy := newProxy(t, func() string { return nodes[0].daemon.Self().Session })
	b := scratch(t, nodes[0].dial(), "shared")
	relayed := nodes[1].dial().Buffer("shared")
	fc, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + lossy.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer fc.Close()
	ctx := limited(t, 60*time.Second)
	for _, test := range []struct {
		name string
		by   *client.Buffer
		cut  bool
	}{{"connected", b, false}, {"cut", b, true}, {"relayed", relayed, false}, {"relayed-cut", relayed, true}} {
		t.Run(test.name, func(t *testing.T) {
			write(t, b, test.name, []byte("old")) // its owner is n1
			zombie, err := fc.Buffer("shared").OpenFile(ctx, test.name, client.OpenOptions{Write: true, Truncate: true})
			if err != nil {
				t.Fatal(err)
			}
			defer zombie.Abort()
			if _, err := zombie.WriteString("committed"); err != nil {
				t.Fatal(err)
			}
			if err := zombie.Sync(); err != nil {
				t.Fatal(err)
			}
			if _, err := zombie.WriteString(", and not"); err != nil {
				t.Fatal(err)
			}
			if err := test.by.Recover(ctx, test.name); err != nil {
				t.Fatal(err)
			}
			e, err := b.Stat(ctx, test.name)
			if err != nil || e.State == client.StateOpen {
				t.Fatalf("it is %v, %v", e.State, err)
			}
			if test.cut {
				lossy.cut()
			}
			if err := zombie.Sync(); err == nil {
				t.Error("who was declared gone writes on")
			}
			wantFile(t, b, test.name, []byte("committed"))
			// Its lawful successor does.
			f, err := test.by.OpenFile(ctx, test.name, client.OpenOptions{Write: true, Append: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("!"); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := zombie.Close(); err == nil {
				t.Error("who was declared gone closes it")
			}
			wantFile(t, b, test.name, []byte("committed!"))
		})
	}
	if err := b.Recover(ctx, "missing"); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("a file that is not there: %v", err)
	}
}
