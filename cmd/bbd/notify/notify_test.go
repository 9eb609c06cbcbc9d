package notify

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// manager is the service manager's end of the socket.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return conn
}

func expect(t *testing.T, conn *net.UnixConn, want string) {
	t.Helper()
	b := make([]byte, 256)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := conn.Read(b)
	if err != nil || string(b[:n]) != want {
		t.Errorf("the manager read %q, %v, want %q", b[:n], err, want)
	}
}

func TestStates(t *testing.T) {
	conn := manager(t)
	for _, c := range []struct {
		call func() error
		want string
	}{
		{Ready, "READY=1"},
		{Stopping, "STOPPING=1"},
		{func() error { return Status("draining") }, "STATUS=draining"},
		{func() error { return Extend(time.Minute) }, "EXTEND_TIMEOUT_USEC=60000000"},
	} {
		if err := c.call(); err != nil {
			t.Error(err)
		}
		expect(t, conn, c.want)
	}
}

func TestWithoutManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Ready(); err != nil {
		t.Error(err)
	}
	if err := Watch(context.Background(), func() bool { return true }); err != nil {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	conn := manager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	calls := 0
	go func() { done <- Watch(ctx, func() bool { calls++; return calls > 1 }) }()
	expect(t, conn, "WATCHDOG=1")
	cancel()
	if err := <-done; err != nil || calls < 2 {
		t.Errorf("Watch: %v after %d questions", err, calls)
	}
}
