package backing_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func TestOwner(t *testing.T) {
	me := backing.NewOwner(7)
	if again := backing.NewOwner(7); again != me || me.Life == 0 {
		t.Fatalf("one process has two lives: %+v, %+v", me, again)
	}
	before, peer := backing.Owner{Instance: 7, Life: me.Life + 1}, backing.Owner{Instance: 8, Life: me.Life}
	for _, test := range []struct {
		name string
		age  time.Duration
		want bool
	}{
		{me.TempName(), 1000 * time.Hour, false},
		{before.TempName(), 0, true},
		{"dir/" + before.TempName(), 0, true},
		{peer.TempName(), backing.PeerAge, false},
		{peer.TempName(), backing.PeerAge + 1, true},
		{"x" + before.TempName(), 1000 * time.Hour, false},
		{before.TempName() + "/x", 1000 * time.Hour, false},
		{"", 1000 * time.Hour, false},
	} {
		if got := me.Abandoned(test.name, test.age); got != test.want {
			t.Errorf("%q of age %v: %v", test.name, test.age, got)
		}
	}
	if me.Ended(peer.TempName()) || !me.Ended(before.TempName()) || me.Ended(me.TempName()) {
		t.Error("only an earlier life of the same instance is known to have ended")
	}
	me.Peers = allEnded{}
	if !me.Ended(peer.TempName()) || !me.Abandoned(peer.TempName(), 0) || me.Ended(me.TempName()) || me.Ended("x") {
		t.Error("what is known of others does not count, or counts for what is not theirs")
	}
	me.Peers = nil
	me.PeerAge = time.Minute
	if !me.Abandoned(peer.TempName(), time.Hour) {
		t.Error("the owner's own age for peers does not count")
	}
}

type allEnded struct{}

func (allEnded) Ended(bb.InstanceID, uint64) bool { return true }

func FuzzIsTemp(f *testing.F) {
	f.Add("a/"+backing.NewOwner(1).TempName(), int64(5))
	f.Add(".forebay-0000000000000007-0000000000000001-0000000000000001.tmp", int64(1<<62))
	f.Fuzz(func(t *testing.T, name string, age int64) {
		abandoned := (backing.Owner{Instance: 1, Life: 1}).Abandoned(name, time.Duration(age))
		if abandoned && (!backing.IsTemp(name) || !strings.HasPrefix(name[strings.LastIndexByte(name, '/')+1:], ".forebay-")) {
			t.Fatalf("%q would be swept", name)
		}
	})
}

func TestInParts(t *testing.T) {
	data := bytes.Repeat([]byte("forebay"), 1000)
	for _, part := range []int64{1, 7, 1000, 7000, 9000} {
		sum, err := backing.InParts(t.Context(), int64(len(data)), part, 3, func(_ context.Context, i int, off, n int64) (uint64, error) {
			if off != int64(i)*part {
				t.Errorf("part %d begins at %d", i, off)
			}
			return checksum.Sum(data[off : off+n]), nil
		})
		if err != nil || sum != checksum.Sum(data) {
			t.Fatalf("parts of %d: %x, %v", part, sum, err)
		}
	}
	if sum, err := backing.InParts(t.Context(), 0, 10, 1, nil); sum != 0 || err != nil {
		t.Fatal(sum, err)
	}
}

func TestInPartsStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	var calls, running atomic.Int32
	_, err := backing.InParts(t.Context(), 1000, 1, 2, func(context.Context, int, int64, int64) (uint64, error) {
		if running.Add(1) > 2 {
			t.Error("more than two at once")
		}
		defer running.Add(-1)
		calls.Add(1)
		return 0, broken
	})
	if err != broken || calls.Load() > 4 {
		t.Fatalf("%v after %d calls", err, calls.Load())
	}
}

func TestVerify(t *testing.T) {
	data := []byte("some bytes")
	for _, test := range []struct {
		stored string
		kind   bb.Kind
	}{{"some bytes", 0}, {"some byte", bb.Checksum}, {"some bytes!", bb.Checksum}, {"some Bytes", bb.Checksum}, {"", bb.Checksum}} {
		r := backing.Verify(io.NopCloser(strings.NewReader(test.stored)), "f", int64(len(data)), checksum.Sum(data))
		_, err := io.ReadAll(r)
		if test.kind == 0 && err != nil || test.kind != 0 && !errors.Is(err, test.kind) {
			t.Errorf("%q: %v", test.stored, err)
		}
	}
}

func TestBytes(t *testing.T) {
	src := backing.NewBytes([]byte("ab"), nil, []byte("cde"), []byte("f"))
	if src.Size() != 6 || src.Checksum() != checksum.Sum([]byte("abcdef")) {
		t.Fatal(src.Size(), src.Checksum())
	}
	for off := range int64(7) {
		for n := range 7 - off {
			slices, err := src.Slices(nil, off, n)
			if err != nil || string(bytes.Join(slices, nil)) != "abcdef"[off:off+n] {
				t.Fatalf("%d+%d: %q, %v", off, n, slices, err)
			}
		}
	}
	for _, r := range [][2]int64{{-1, 1}, {0, 7}, {7, 0}, {0, -1}, {1 << 62, 1 << 62}} {
		if _, err := src.Slices(nil, r[0], r[1]); err == nil {
			t.Errorf("range %v is not refused", r)
		}
	}
}
