package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clusterkey"
)

// TestKeyIsReplaced changes the cluster key of three daemons, one after the other, while clients
// write through each and read through another. None of it fails.
func TestKeyIsReplaced(t *testing.T) {
	first, second := string(clusterkey.New()), string(clusterkey.New())
	dir := t.TempDir()
	keyOf := func(i int) string { return filepath.Join(dir, fmt.Sprintf("key%d", i)) }
	put := func(path string, keys ...string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	gossip, nats := bbdtest.FreePort(t, "127.0.0.1"), bbdtest.FreePort(t, "127.0.0.1")
	_, gossipPort, _ := strings.Cut(gossip, ":")
	var daemons []*bbdtest.Daemon
	var addresses []string
	for i := range 3 {
		host := fmt.Sprintf("127.0.0.%d", i+1)
		put(keyOf(i), first)
		addresses = append(addresses, bbdtest.FreePort(t, host))
		d := bbdtest.New(t, "--name", fmt.Sprintf("n%d", i+1), "--memory", "128MiB", "--listen-tcp", addresses[i], "--key-file", keyOf(i),
			"--cluster-listen", host+":"+gossipPort, "--cluster-advertise", host, "--cluster-join", gossip)
		d.Env = []string{"FOREBAY_NATS_SERVERS=" + nats}
		d.Start()
		daemons = append(daemons, d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dial := func(i int, key string) (*client.Client, error) {
		file := filepath.Join(t.TempDir(), "key")
		put(file, key)
		return client.Dial(ctx, client.Options{Address: "tcp://" + addresses[i], KeyFile: file})
	}
	var clients []*client.Client
	for i := range daemons {
		c, err := dial(i, first)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	all := func() bool {
		nodes, err := admin.Nodes(ctx, clients[0])
		ready := 0
		for _, n := range nodes {
			if n.State == "ready" {
				ready++
			}
		}
		return err == nil && ready == 3
	}
	for !all() {
		if ctx.Err() != nil {
			t.Fatal("the daemons do not find each other")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := admin.CreateBuffer(ctx, clients[0], admin.BufferSpec{Name: "load", Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var done [3]atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for k := 0; !stop.Load(); k++ {
				name := fmt.Sprintf("f%d.%d", i, k)
				err := clients[i].Buffer("load").WriteFile(ctx, name, []byte(name), 0o644)
				var got []byte
				if err == nil {
					got, err = clients[(i+1)%3].Buffer("load").ReadFile(ctx, name)
				}
				if err == nil && string(got) != name {
					err = fmt.Errorf("other bytes")
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				done[i].Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	progress := func() {
		t.Helper()
		for i := range done {
			for was := done[i].Load(); done[i].Load() < was+3 && !t.Failed(); time.Sleep(5 * time.Millisecond) {
				if ctx.Err() != nil {
					t.Fatal("the load stands still")
				}
			}
		}
	}
	told := 0
	for _, keys := range [][]string{{first, second}, {second, first}, {second}} {
		told++
		for i, d := range daemons {
			put(keyOf(i), keys...)
			if err := syscall.Kill(d.Pid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			for strings.Count(d.Log(), "the cluster key was read again") < told {
				if ctx.Err() != nil {
					t.Fatalf("the daemon does not read its key again\n%s", d.Log())
				}
				time.Sleep(5 * time.Millisecond)
			}
			progress()
			c, err := dial(i, keys[0]) // sessions that begin now
			if err != nil {
				t.Errorf("daemon %d with %d keys: %v", i+1, len(keys), err)
				continue
			}
			c.Close()
		}
	}
	stop.Store(true)
	wg.Wait()
	if !all() {
		t.Error("the daemons have lost each other")
	}
	if _, err := dial(0, first); client.KindOf(err) != client.ErrPermission {
		t.Errorf("the old key: %v", err)
	}
	// A daemon that starts with the new key alone finds the others and the namespace.
	daemons[2].Stop()
	daemons[2].Start()
	for !all() {
		if ctx.Err() != nil {
			t.Fatal("a daemon with the new key does not come back")
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, d := range daemons {
		if strings.Contains(d.Log(), first) || strings.Contains(d.Log(), second) {
			t.Error("a key stands in the log")
		}
	}
}
