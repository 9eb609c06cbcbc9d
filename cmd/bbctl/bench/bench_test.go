package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/layout"
	"forebay/internal/bbdtest"
	"forebay/internal/measure"
	"forebay/internal/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChooseSize(t *testing.T) {
	const mib, gib = int64(1) << 20, int64(1) << 30
	for _, c := range []struct {
		capacity, memory, free, asked int64
		want                          int64 // 0: refused
		kind                          client.Kind
	}{
		{capacity: 0, memory: 4 * gib, free: 4 * gib, want: 409 * mib},
		{capacity: gib, memory: 4 * gib, free: 4 * gib, want: 102 * mib},
		{capacity: 64 * gib, memory: 4 * gib, free: 4 * gib, want: 409 * mib},
		{capacity: 0, memory: 400 * gib, free: 400 * gib, want: gib},
		{capacity: 0, memory: 4 * gib, free: 100 * mib, want: 50 * mib},
		{capacity: 0, memory: 4 * gib, free: mib, kind: client.ErrNoSpace},
		{capacity: 20 * mib, memory: 4 * gib, free: gib, kind: client.ErrNoSpace},
		{capacity: 20 * mib, memory: 4 * gib, free: gib, asked: 20 * mib, want: 20 * mib},
		{capacity: 20 * mib, memory: 4 * gib, free: gib, asked: 21 * mib, kind: client.ErrInvalid},
		{capacity: 0, memory: 4 * gib, free: gib, asked: 5 * gib, kind: client.ErrInvalid},
		{capacity: 0, memory: 4 * gib, free: gib, asked: mib, kind: client.ErrInvalid},
	} {
		got, err := chooseSize(c.capacity, c.memory, c.free, c.asked)
		if got != c.want || c.want == 0 && client.KindOf(err) != c.kind || c.want != 0 && err != nil {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

// TestShares: the buffer never has more bytes at a time than the size.
func TestShares(t *testing.T) {
	for size := int64(minSize); size <= 4<<30; size += size/3 + 1 {
		r := &Run{size: size, file: fileSize(size)}
		large, drained := int64(r.files(largeShare))*r.file, int64(r.files(drainShare))*r.file
		small := int64(r.smallOps()) * smallFile
		if most := max(large+small, 2*drained, small); most > size {
			t.Errorf("%d of %d bytes, in files of %d", most, size, r.file)
		}
		if small < fewSmall*smallFile {
			t.Errorf("%d: only %d bytes of small files", size, small)
		}
	}
}

func TestBelow(t *testing.T) {
	for store, want := range map[string]string{
		"file:///store":                         "file:///store/mine/drain",
		"file:///store/":                        "file:///store/mine/drain",
		"s3://bucket?endpoint=http://host:1":    "s3://bucket/mine/drain?endpoint=http://host:1",
		"s3://bucket/prefix?path_style=true":    "s3://bucket/prefix/mine/drain?path_style=true",
		"file:///with%20space/and%23more/store": "file:///with%20space/and%23more/store/mine/drain",
	} {
		if got, err := below(store, "mine/drain"); got != want || err != nil {
			t.Errorf("%s: %s, %v", store, got, err)
		}
	}
}

func TestReport(t *testing.T) {
	good := Row{Name: "write", Result: measure.Of("ours", measure.BytesPerSecond, []float64{1e9, 3e9, 2e9}), Limit: measure.Of("limit", measure.BytesPerSecond, []float64{4e9})}
	good.Ratio = measure.Ratio(good.Result, good.Limit)
	if got, want := good.Cells(), []string{"write", "2.00 GB/s", "4.00 GB/s", "0.500", "limit"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := good.Lines(); len(got) != 1 || got[0] != "write: ours; the median of 3, the best 3.00 GB/s" {
		t.Errorf("%q", got)
	}
	absent := Row{Name: "drain", NotMeasured: noStore}
	if got := absent.Lines(); len(got) != 1 || got[0] != "drain: not measured: the buffer has no store" {
		t.Errorf("%q", got)
	}
	lost := &client.Error{Kind: client.ErrLost, Op: "read", Err: errors.New("gone")}
	failed := Row{Name: "read", NotMeasured: "gone", Failed: true, err: lost}
	for _, c := range []struct {
		rows []Row
		kind client.Kind // 0: no error
		part bool
	}{
		{[]Row{good, absent}, 0, true},
		{[]Row{good, failed}, client.ErrLost, true},
		{[]Row{failed, absent}, client.ErrLost, false},
	} {
		err, part := (&Report{Rows: c.rows}).Err()
		if part != c.part || (err != nil) != (c.kind != 0) || err != nil && !errors.Is(err, c.kind) {
			t.Errorf("%+v: %v, %v", c.rows, err, part)
		}
	}
}

// TestReadBackEvicted: files that the daemon has evicted are read back by their names.
func TestReadBackEvicted(t *testing.T) {
	d := bbdtest.Start(t, "--memory", "128MiB")
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "evicted", Backing: "file://" + t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), c, client.Address{Buffer: "evicted"}, Options{Size: 8 << 20, Time: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer r.free()
	if err := r.memories(); err != nil {
		t.Fatal(err)
	}
	if err := r.b.Mkdir(t.Context(), r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if row, err := drain(t.Context(), r, time.Second); err != nil || row.Result.Value <= 0 || row.Limit == nil {
		t.Fatalf("%+v, %v", row, err)
	}
	n := r.files(drainShare)
	if gone, err := r.evicted(t.Context(), n); gone != 0 || err != nil {
		t.Fatalf("%d of %d are evicted at once: %v", gone, n, err)
	}
	crowd(t, r, n)
	row, err := readBack(t.Context(), r, time.Second)
	if err != nil || row.Result.Value <= 0 || row.Limit == nil || !strings.Contains(row.Result.What, "3 files of 1.00 MiB that were evicted") {
		t.Errorf("%+v, %v", row, err)
	}
	if err := r.remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestObjectStore: rows are measured on an object store, whose own rate is not.
func TestObjectStore(t *testing.T) {
	server := s3test.Start(t)
	for _, v := range server.Env() {
		key, value, _ := strings.Cut(v, "=")
		t.Setenv(key, value)
	}
	d := bbdtest.Start(t, "--memory", "128MiB")
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "objects", Backing: server.URL(server.Bucket(t, "bench"), "some")}); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), c, client.Address{Buffer: "objects"}, Options{Size: 8 << 20, Time: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	report, err := r.Measure(t.Context(), func(int, int, string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Rows {
		if row.Result == nil || row.Result.Value <= 0 || row.Failed {
			t.Errorf("%+v", row)
		}
		stored := row.Name == "drain" || row.Name == "read back"
		if without := row.Limit == nil && slices.Contains(row.Notes, "the store's own rate is not measured: an object store needs its keys"); without != stored {
			t.Errorf("%s: %+v, %q", row.Name, row.Limit, row.Notes)
		}
	}
	for e, err := range r.b.ReadDir(t.Context(), "") {
		t.Errorf("left behind: %s, %v", e.Path, err)
	}
}

// crowd writes and drains other files until those of drain are evicted.
func crowd(t *testing.T, r *Run, n int) {
	t.Helper()
	data := make([]byte, 8<<20)
	for i := range 200 {
		if gone, err := r.evicted(t.Context(), n); err != nil {
			t.Fatal(err)
		} else if gone == n {
			return
		}
		if err := r.b.WriteFile(t.Context(), fmt.Sprintf("crowd-%d", i), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Drain(t.Context(), r.c, r.b.Name(), 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("nothing is evicted")
}

// TestTextFits: no line is wider than the terminal.
func TestTextFits(t *testing.T) {
	row := Row{Name: "small files", Result: measure.Of("ours", measure.PerSecond, []float64{2600}), Limit: tripLimit(measure.PerSecond, []float64{80e3}), NotMeasured: "no end after 20s: the buffer may have no room, or its node is busy"}
	row.Ratio = measure.Ratio(row.Result, row.Limit)
	for _, width := range []int{0, 200, 80, 40, 20, 9} {
		var all []string
		f := Front{View: func() layout.View { return layout.View{Width: width} }, Lines: func(lines []string) { all = append(all, lines...) }}
		f.text(&Report{Directory: "bb://ckpt/forebay-bench-abcdefgh", Rows: []Row{row, {Name: "drain", NotMeasured: noStore}}})
		for _, line := range all {
			if width > 0 && len([]rune(line)) > width {
				t.Errorf("%d: %q", width, line)
			}
		}
		if shown := strings.Contains(strings.Join(all, "\n"), "WHAT THE LIMIT IS"); shown != (width == 0 || width >= 100) {
			t.Errorf("%d: the names of limits are shown: %v", width, shown)
		}
	}
}
