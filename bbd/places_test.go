package bbd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// flooderEnv makes this binary a program of another user that takes as many sessions at a unix
// socket as it gets, and holds them until its standard input ends.
const flooderEnv = "FOREBAY_TEST_FLOODER"

type flooded struct {
	Sessions int
	Kind     string // of the first refusal
	Text     string
}

func flood(socket string) int {
	var f flooded
	var held []net.Conn // a connection without references is closed
	for f.Sessions < 1000 {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_, err = wire.Handshake(conn, wire.NewReader(conn), &wire.Hello{Client: "flood"})
		}
		if err != nil {
			f.Kind, f.Text = bb.KindOf(err).String(), err.Error()
			break
		}
		held = append(held, conn)
		f.Sessions++
	}
	if json.NewEncoder(os.Stdout).Encode(f) != nil {
		return 1
	}
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(held)
	return 0
}

// holdAs runs this binary as a user, reads its output into result, and lets it continue until the
// returned function is called.
func holdAs(t *testing.T, dir string, uid uint32, env string, result any) (end func()) {
	t.Helper()
	cmd := otherUser(t, dir, uid, env)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, result)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return func() {
		t.Helper()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestSessionsOfAUser leaves sessions for other users, and for root in any case.
func TestSessionsOfAUser(t *testing.T) {
	t.Parallel()
	open := openDir(t)
	n := startNode(t, func(c *bbd.Config) { c.Limits.Sessions = 16 })
	chmod(t, n.dir, 0o755)
	for round := range 2 { // returned places are free again
		var ends []func()
		for i, want := range []int{8, 4, 2, 1} {
			var f flooded
			ends = append(ends, holdAs(t, open, intruderUID-uint32(i), flooderEnv+"="+n.socket, &f))
			if f.Sessions != want || f.Kind != bb.Busy.String() || !strings.Contains(f.Text, fmt.Sprintf("this user has %d session", want)) {
				t.Errorf("round %d: user %d of 4: %+v, want %d sessions", round, i+1, f, want)
			}
		}
		for range 40 {
			if _, err := admin.Status(t.Context(), n.dial(), ""); err != nil {
				t.Fatalf("root: %v", err)
			}
		}
		for _, end := range ends {
			end()
		}
		eventually(t, "the sessions have ended", func() bool {
			for _, s := range n.daemon.Status().Sessions {
				if s.Client == "flood" {
					return false
				}
			}
			return true
		})
	}
}

// TestUnprovenConnections admits proven clients beside any number of unproven connections, and
// reports the end to those that gave way.
func TestUnprovenConnections(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) {
		c.TCP, c.Insecure, c.Limits.Unproven, c.Limits.Handshake = "127.0.0.1:0", true, 8, time.Hour
	})
	address := n.daemon.Self().Session
	var all []net.Conn
	for range 100 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	c, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + address})
	if err != nil {
		t.Fatalf("who proves it is not let in: %v", err)
	}
	defer c.Close()
	if _, err := admin.Buffers(t.Context(), c); err != nil {
		t.Error(err)
	}
	for i, conn := range all[:100-8] {
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Fatalf("connection %d was not ended: %v", i, err)
		}
	}
}
