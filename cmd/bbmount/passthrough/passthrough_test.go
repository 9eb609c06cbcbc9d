package passthrough

import (
	"errors"
	"syscall"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	large := Opening{Size: Least, Generation: 3}
	with := func(change func(*Opening)) Opening {
		o := large
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		o    Opening
		way  Way
		fail error
	}{
		"first":                 {large, Try, nil},
		"small":                 {with(func(o *Opening) { o.Size-- }), Usual, nil},
		"writer":                {with(func(o *Opening) { o.Write = true }), Usual, nil},
		"program":               {with(func(o *Opening) { o.Exec = true }), Usual, nil},
		"being written":         {with(func(o *Opening) { o.Generation = 0 }), Usual, nil},
		"without a name":        {with(func(o *Opening) { o.Nameless = true }), Usual, nil},
		"beside usual ones":     {with(func(o *Opening) { o.Others = 1 }), Usual, nil},
		"beside passthrough":    {with(func(o *Opening) { o.Others, o.Reads = 1, 3 }), Join, nil},
		"program beside it":     {with(func(o *Opening) { o.Others, o.Reads, o.Exec = 1, 3, true }), Join, nil},
		"writer beside it":      {with(func(o *Opening) { o.Others, o.Reads, o.Write = 1, 3, true }), Usual, syscall.ETXTBSY},
		"newer bytes beside it": {with(func(o *Opening) { o.Others, o.Reads = 1, 2 }), Usual, syscall.ESTALE},
		"writing, beside it":    {with(func(o *Opening) { o.Others, o.Reads, o.Generation = 1, 2, 0 }), Usual, syscall.ESTALE},
		"no name, beside it":    {with(func(o *Opening) { o.Others, o.Reads, o.Generation, o.Nameless = 1, 2, 0, true }), Join, nil},
	} {
		if way, err := Of(c.o); way != c.way || !errors.Is(err, c.fail) {
			t.Errorf("%s: %v, %v; want %v, %v", name, way, err, c.way, c.fail)
		}
	}
}
