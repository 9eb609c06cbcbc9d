package stores

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"forebay/cmd/bbbench/testbed"
	"forebay/internal/bb"
)

func TestBurstSize(t *testing.T) {
	const gib = int64(1) << 30
	if got := burstSize(8*gib, 64*gib, gib); got != 8*gib {
		t.Errorf("a burst that fits is cut to %d", got)
	}
	if got := burstSize(8*gib, 10*gib, gib); got >= 6*gib || got <= 4*gib || got%flushFile != 0 {
		t.Errorf("with 10 GiB: %d", got)
	}
	if got := burstSize(8*gib, gib, gib); got != 0 {
		t.Errorf("with nothing left: %d", got)
	}
}

func TestArrivals(t *testing.T) {
	times := arrivals(10_000, time.Millisecond)
	if times[0] != 0 || !slices.IsSorted(times) {
		t.Fatal("arrivals are not in order from 0 on")
	}
	if mean := times[len(times)-1] / time.Duration(len(times)); mean < 950*time.Microsecond || mean > 1050*time.Microsecond {
		t.Errorf("mean distance %v, not 1ms", mean)
	}
	if !slices.Equal(times, arrivals(10_000, time.Millisecond)) {
		t.Error("two runs differ")
	}
}

func TestParseFio(t *testing.T) {
	took, err := parseFio([]byte(`{"fio version":"fio-3.33","jobs":[{"jobname":"limit","error":0,"write":{"io_bytes":1073741824,"bw_bytes":536870912,"runtime":2000}}]}`))
	if err != nil || took != 2*time.Second {
		t.Errorf("%v, %v", took, err)
	}
	for _, bad := range []string{``, `{}`, `{"jobs":[]}`, `{"jobs":[{"error":28,"write":{"runtime":1}}]}`, `{"jobs":[{"write":{"runtime":0}}]}`, `fio: laying out`} {
		if _, err := parseFio([]byte(bad)); err == nil {
			t.Errorf("%q is taken for an answer", bad)
		}
	}
}

func FuzzParseFio(f *testing.F) {
	f.Add([]byte(`{"jobs":[{"error":0,"write":{"io_bytes":1,"runtime":2}}]}`))
	f.Add([]byte(`{"jobs":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if took, err := parseFio(text); err == nil && took == 0 {
			t.Error("writing took no time")
		}
	})
}

func TestUserSizes(t *testing.T) {
	for _, x := range []struct {
		total int64
		users int
		files int
		size  int64
	}{
		{2 << 30, 1, 32, 64 << 20},
		{2 << 30, 20, 4, 25 << 20},
		{128 << 20, 3, 4, 10 << 20},
		{32 << 20, 100, 1, 1 << 20},
	} {
		if files, size := userSizes(x.total, x.users); files != x.files || size != x.size {
			t.Errorf("%d bytes by %d users: %d files of %d bytes", x.total, x.users, files, size)
		}
	}
}

func TestCheckUsers(t *testing.T) {
	for _, bad := range []testbed.Place{{Users: -1}, {Users: mostUsers + 1}, {Users: 1, Socket: "x"}} {
		if err := CheckUsers(bad); !errors.Is(err, bb.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := CheckUsers(testbed.Place{}); err != nil {
		t.Error(err)
	}
	if err := CheckUsers(testbed.Place{Users: 1}); (err == nil) != (os.Geteuid() == 0) {
		t.Errorf("as uid %d: %v", os.Geteuid(), err)
	}
}
