//go:build ofi && cgo

package client_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
)

// In this build bytes of clients elsewhere travel over libfabric, in software.
var fabricArgs = []string{"--fabric-ofi", "on", "--fabric-provider", "tcp", "--fabric-address", "127.0.0.1"}

const fabricConn = "*ofi."

// TestFarFallsBack: connections that libfabric cannot make use TCP, also one-sided.
func TestFarFallsBack(t *testing.T) {
	t.Parallel()
	c, b := farBuffer(t)
	far := c.Connection().Now().Remote
	far.Route = far.NewRoute("127.0.0.1:1")
	data := random(5 << 20)
	check(t, b.WriteFile(context.Background(), "f", data, 0))
	if got := must[[]byte](t)(b.ReadFile(context.Background(), "f")); !bytes.Equal(got, data) {
		t.Error("content differs")
	}
	if far.Dialled() == nil {
		t.Fatal("bytes did not travel one-sided")
	}
	if way := fmt.Sprintf("%T", far.Dialled()); !strings.HasPrefix(way, "*tcp.") {
		t.Errorf("bytes travelled by a %s", way)
	}
}
