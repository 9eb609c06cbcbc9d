package provider

import (
	"fmt"

	"forebay/rdma"
)

// Default sets an option that is zero.
func Default[T ~int | ~int64](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Within returns ErrInvalid, with the reason, for an option of a provider that is not within low
// and high.
func Within[T ~int | ~int64](provider, name string, v, low, high T) error {
	if v < low || v > high {
		return fmt.Errorf("%s option %s: %v is not within %v and %v: %w", provider, name, v, low, high, rdma.ErrInvalid)
	}
	return nil
}
