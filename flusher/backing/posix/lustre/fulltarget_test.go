package lustre

import "testing"

// Each attempt requests twice as many targets, of each component and of the same pools, and for all of them in the end.
func TestOther(t *testing.T) {
	for _, c := range []struct {
		had   string
		tries int
		want  string
	}{
		{"-c 20", 1, "-c 40"},
		{"-c 20", 2, "-c -1"},
		{"-c 1 -S 1M", 7, "-c -1 -S 1M"},
		{"-c -1 -p flash", 3, "-c -1 -p flash"},
		{"-E 1M -c 1 -E -1 -c 40 -p flash", 1, "-E 1M -c 2 -E -1 -c -1 -p flash"},
	} {
		l, err := Parse(c.had)
		if err != nil {
			t.Fatal(err)
		}
		for range c.tries {
			l = l.other()
		}
		if l.String() != c.want {
			t.Errorf("%s after %d attempts: %s, want %s", c.had, c.tries, l, c.want)
		}
	}
	dom := Layout{{End: 1 << 16, MDT: true, StripeSize: 1 << 16}, {Count: 4}}
	if got := dom.other(); got.String() != "-c 8" || got.Check() != nil || !dom[0].MDT {
		t.Errorf("of data on the metadata server: %s", got)
	}
	var unknown Layout
	if got := unknown.other().String(); got != "-c 2" {
		t.Errorf("of an unknown layout: %s", got)
	}
}
