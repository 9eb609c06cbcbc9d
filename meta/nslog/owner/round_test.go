package owner

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestGaveUp: the error of a call that was cancelled tells that once, and for what it waited.
func TestGaveUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := &Owner{o: Options{Unanswered: func(ctx context.Context, _ string, cause error) error {
		return fmt.Errorf("%w: %w", context.Cause(ctx), cause)
	}}}
	if text := w.gaveUp(ctx, "create", "f").Error(); strings.Count(text, "context canceled") != 1 || !strings.Contains(text, "the log has not answered") {
		t.Error(text)
	}
}
