package latency

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"forebay/cmd/bbbench/process"
)

// TestMain is also the worker that rows start: this program again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "worker" {
		serve := map[string]func(*os.File) error{process.WorkEcho: Echo, process.WorkEchoNet: EchoNet}[os.Args[2]]
		if err := serve(os.NewFile(3, "socket")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func TestPing(t *testing.T) {
	for _, kind := range []string{process.WorkEcho, process.WorkEchoNet} {
		p, err := startPing(kind)
		if err != nil {
			t.Fatal(err)
		}
		times, err := p.trips(50)
		if err != nil || len(times) != 50 || slices.Min(times) <= 0 {
			t.Errorf("%s: %v, %v", kind, times, err)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}
