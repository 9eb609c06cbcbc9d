package metatest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/embedded"
)

// Context returns a context that ends a test that hangs.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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

// StartListening is StartServer of one that listens on an address.
func StartListening(t testing.TB, dir, listen string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(Context(t), embedded.Options{Dir: dir, Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// WantKind fails unless an error is of a kind. 0 means that there must be none.
func WantKind(t testing.TB, what string, err error, kind bb.Kind) {
	t.Helper()
	if kind == 0 && err != nil || kind != 0 && bb.KindOf(err) != kind {
		t.Errorf("%s: %v, want kind %v", what, err, kind)
	}
}

// Logger returns a log of errors that goes to the test's.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}
