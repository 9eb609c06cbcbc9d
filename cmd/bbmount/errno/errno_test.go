package errno

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"forebay/client"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		want  syscall.Errno
		known bool
	}{
		{nil, 0, true},
		{fmt.Errorf("wrapped: %w", syscall.ESTALE), syscall.ESTALE, true},
		{fmt.Errorf("wrapped: %w", &client.Error{Kind: client.ErrNotEmpty}), syscall.ENOTEMPTY, true},
		{&client.Error{Kind: client.ErrLost}, syscall.EIO, false},
		{errors.New("anything"), syscall.EIO, false},
	} {
		if got, known := Of(c.err); got != c.want || known != c.known {
			t.Errorf("%v: %v, %v", c.err, got, known)
		}
	}
}
