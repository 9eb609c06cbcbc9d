package mem_test

import (
	"context"
	"errors"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/mem"
)

const large = 3<<20 + 17

func TestSuite(t *testing.T) {
	backingtest.Suite(t, harness())
}

func harness() backingtest.Harness {
	return backingtest.Harness{
		Open:  func(*testing.T) backing.Store { return mem.New(backing.Owner{Instance: 1, Life: 1}, nil) },
		Large: large,
		Damage: func(t *testing.T, s backing.Store, name string) {
			if err := s.(*mem.Store).Damage(name); err != nil {
				t.Fatal(err)
			}
		},
		Crash: crash,
	}
}

// crash stops a Put at each of its steps before the last, and reopens.
func crash(t *testing.T, name string) backing.Store {
	died := errors.New("died")
	s := mem.New(backing.Owner{Instance: 1, Life: 1}, func(_ context.Context, _ string, step mem.Step) error {
		if step == mem.StepWritten {
			return died
		}
		return nil
	})
	if _, err := s.Put(t.Context(), name, backing.NewBytes(backingtest.Data(large, 1)), backing.PutOptions{}); !errors.Is(err, died) {
		t.Fatal(err)
	}
	return s.Reopen(backing.Owner{Instance: 1, Life: 2})
}
