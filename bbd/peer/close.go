package peer

import (
	"context"
	"time"

	"forebay/internal/wire"
)

// closeWithin bounds the close of a handle.
const closeWithin = 5 * time.Second

// CloseUnheard closes, in a goroutine that start starts, a handle whose opening was cancelled with
// ctx, since it may have succeeded.
func CloseUnheard(ctx context.Context, start func(func()), s interface{ CloseHandle(uint64) }, handle uint64) {
	if ctx.Err() != nil {
		start(func() { s.CloseHandle(handle) })
	}
}

// CloseHandle closes a handle. It ends with the session in any case.
func (s *Session) CloseHandle(handle uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_, _ = s.Ask(ctx, wire.Type_TYPE_CLOSE, &wire.Close{Handle: handle}, nil, nil)
}
