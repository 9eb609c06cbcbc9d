package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/conn"
	"forebay/meta/namespace"
)

// onlyOne is the cluster of a daemon that knows no other one.
type onlyOne struct{ node bb.NodeID }

func (onlyOne) Carry(context.Context, bb.NodeID, string, []byte) ([]byte, error) {
	return nil, bb.E(bb.Unavailable, "call", "", "there is no other daemon")
}

func (o onlyOne) All() []meta.Peer { return []meta.Peer{{Node: o.node}} }

// SpeakLogs implements meta.Peers.
func (onlyOne) SpeakLogs() error { return nil }

// The server in the process of a log's owner hands the log's stream over, again and again, and changes continue.
func TestLogApartFromItsOwner(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take long under the race detector; TestListen starts one")
	}
	c := newTrio(t)
	started := make(chan int)
	for i := range c.servers {
		go func() { c.start(i); started <- i }()
	}
	for range c.servers {
		<-started
	}
	m := mustConnect(t, meta.Options{InProcess: c.servers[0], Node: "s0", Engine: meta.EngineLog, Peers: onlyOne{"s0"}})
	if _, err := m.CreateBuffer(longContext(t), bb.Buffer{Name: "buf", Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	stream := ""
	for deadline := time.Now().Add(10 * time.Second); stream == "" && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, name := range c.servers[0].streams() {
			if strings.HasPrefix(name, "NS_") {
				stream = name
			}
		}
	}
	if stream == "" {
		t.Fatal("the buffer has no log")
	}
	asks, err := conn.Dial(longContext(t), conn.Options{InProcess: c.servers[0], Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer asks.Close()
	ns := mustNamespace(t, m, "buf")
	for round := range 3 {
		c.lead(t, asks, stream)
		deadline := time.Now().Add(20 * time.Second)
		for made := 0; c.servers[0].LeadsStream(stream); made++ {
			if _, err := ns.Mkdir(longContext(t), bb.RootDir, fmt.Sprintf("d%d-%d", round, made), namespace.Owner{Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(deadline) {
				t.Fatal("the server beside the owner leads the log for 20 s")
			}
		}
		c.leader(stream) // another one does
	}
}

// lead makes the first server lead a stream.
func (c *trio) lead(t *testing.T, asks *conn.Conn, stream string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": c.options[0].Name}})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !c.servers[0].LeadsStream(stream); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first server does not lead the stream")
		}
		once, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := asks.Request(once, &conn.Message{Subject: "$JS.API.STREAM.LEADER.STEPDOWN." + stream, Data: body}); err != nil {
			t.Logf("stepping down: %v", err)
		}
		cancel()
		for end := time.Now().Add(time.Second); !c.servers[0].LeadsStream(stream) && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
	}
}
