package lustre

import "testing"

func TestLayoutFor(t *testing.T) {
	table := []Layout{{MinSize: 4 << 20, Count: 8}, {MinSize: 2 << 20, Count: 4, StripeSize: 1 << 20}}
	for _, test := range []struct {
		size  int64
		count int
	}{{0, 0}, {2<<20 - 1, 0}, {2 << 20, 4}, {4<<20 - 1, 4}, {4 << 20, 8}, {1 << 50, 8}} {
		got, ok := LayoutFor(table, test.size)
		if got.Count != test.count || ok != (test.count != 0) {
			t.Errorf("size %d: %+v, %v", test.size, got, ok)
		}
	}
	if errs := CheckLayouts([]Layout{{Count: 1}, {MinSize: 1 << 30, Count: -1, StripeSize: 4 << 20}}); errs != nil {
		t.Error(errs)
	}
	if errs := CheckLayouts([]Layout{{Count: 0}, {Count: -2}, {MinSize: -1, Count: 1}, {Count: 1, StripeSize: 1}}); len(errs) != 4 {
		t.Errorf("%d faults found in four rows: %v", len(errs), errs)
	}
}
