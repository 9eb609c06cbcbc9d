package client_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/internal/lease"
)

// TestOverlaps writes over uncommitted bytes, in several leases at once. Later writes win, at any
// places.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	_, dial := farDaemon(t)
	_, local, _ := daemonClient(t)
	ctx := context.Background()
	runs := 20
	if testing.Short() {
		runs = 4
	}
	for name, b := range map[string]*client.Buffer{"mapped": local.Buffer("b"), "far": dial().Buffer("open")} {
		for run := range runs {
			f := must[*client.File](t)(b.Create(ctx, "f"))
			want := random(3<<20 + 5)
			must[int](t)(f.Write(want))
			for _, n := range []int{10, 5 << 20, client.MaxReserve, 300_000} {
				room := must[[]byte](t)(f.Reserve(n))
				copy(room, random(n))
				want = append(want, room...)
				check(t, f.Publish(n))
			}
			for i := range 30 {
				p, off := random(rand.IntN(2<<20)), rand.IntN(len(want)-2<<20)
				copy(want[off:], p)
				must[int](t)(f.WriteAt(p, int64(off)))
				if i%7 == 0 {
					check(t, f.Sync())
				}
			}
			check(t, f.Close())
			if got := readAll(t, b, "f"); !bytes.Equal(got, want) {
				t.Errorf("%s, run %d: content differs", name, run)
			}
			check(t, b.Remove(ctx, "f"))
		}
	}
}

// TestReserveBesideUnfinished: unfinished segments of others are too small for a large
// reservation, however much of it there is.
func TestReserveBesideUnfinished(t *testing.T) {
	t.Parallel()
	d, local, _ := daemonClient(t)
	b := local.Buffer("b")
	ctx := context.Background()
	for i := range 12 {
		c := must[*client.Client](t)(client.Dial(ctx, client.Options{Address: "unix://" + d.Socket}))
		defer c.Close()
		check(t, c.Buffer("b").WriteFile(ctx, fmt.Sprint(i), random(100_000), 0))
	}
	time.Sleep(2 * lease.IdleFor) // they give their leases back, which are unfinished segments
	f := must[*client.File](t)(b.Create(ctx, "large"))
	copy(must[[]byte](t)(f.Reserve(client.MaxReserve)), random(client.MaxReserve))
	check(t, f.Publish(client.MaxReserve))
	check(t, f.Close())
}
