package metatest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"forebay/meta/embedded"
)

// Context returns a context that ends a test that hangs.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// StartServer starts a server in this process with its files in a folder. It ends with the
// test.
func StartServer(t testing.TB, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(Context(t), embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// Logger returns a log of errors that goes to the test's.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}
