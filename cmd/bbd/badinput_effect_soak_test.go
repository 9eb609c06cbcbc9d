//go:build soak

package main

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/clustertest"
	"forebay/meta/gossip"
)

// State that bad input must not change, and goroutines that it may leave.

// standing describes all that is not the flood's user's, by name: members, buffers with their entries and
// transactions, jobs, lifetimes, and the files of the store.
func (f *flood) standing(c *client.Client, store string) map[string]string {
	f.t.Helper()
	ctx, all := f.t.Context(), map[string]string{}
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	note := func(name string, v any) {
		f.t.Helper()
		text, err := json.Marshal(v)
		must(err)
		all[name] = string(text)
	}
	nodes, err := admin.Nodes(ctx, c)
	must(err)
	for _, n := range nodes {
		n.Memory, n.Disk, n.Since = admin.TierUsage{}, admin.TierUsage{}, time.Time{}
		note("node "+string(n.Name), n)
	}
	buffers, err := admin.Buffers(ctx, c)
	must(err)
	for _, spec := range buffers {
		if spec.UID == floodUID {
			continue
		}
		note("buffer "+spec.Name, spec)
		b := c.Buffer(spec.Name)
		for e, err := range b.Walk(ctx, "") {
			must(err)
			note("entry bb://"+spec.Name+"/"+e.Path, e)
		}
		txns, err := b.Txns(ctx)
		must(err)
		for _, x := range txns {
			note("transaction "+x.ID, x)
		}
	}
	jobs, err := admin.Operations(ctx, c)
	must(err)
	for _, j := range jobs {
		if j.UID != floodUID {
			note("job "+j.ID, j)
		}
	}
	lifetimes, err := admin.Lifetimes(ctx, c, "")
	must(err)
	for _, l := range lifetimes {
		if l.UID != floodUID {
			note("lifetime "+l.Key, l)
		}
	}
	for path, content := range tree(f.t, store) {
		note("file "+path, content)
	}
	return all
}

// owns counts the resources of the flood's user.
func (f *flood) owns(c *client.Client) (n, entries int) {
	f.t.Helper()
	buffers, err := admin.Buffers(f.t.Context(), c)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, spec := range buffers {
		if spec.UID != floodUID {
			continue
		}
		n++
		for _, err := range c.Buffer(spec.Name).Walk(f.t.Context(), "") {
			if errors.Is(err, client.ErrNotFound) {
				break // a request of the user's that is still carried out removes it
			}
			if err != nil {
				f.t.Fatal(err)
			}
			entries++
		}
	}
	return n, entries
}

// differences counts the names that are not as they were, and names them.
func differences(t *testing.T, what string, before, after map[string]string) (n int) {
	t.Helper()
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before[name] != after[name] {
			n++
			t.Errorf("%s: %s was %q, is %q", what, name, before[name], after[name])
		}
	}
	return n
}

// The kinds of memberlist's packets.
const (
	suspectPacket = 3
	alivePacket   = 4
	deadPacket    = 5
)

// gossiped is a packet as a member sends one about another, encrypted with a key.
func gossiped(t *testing.T, key []byte, kind byte, node string, incarnation uint32) []byte {
	t.Helper()
	text := func(b []byte, s string) []byte { return append(append(b, 0xa0|byte(len(s))), s...) } // msgpack, up to 31 bytes
	fields := [][]byte{
		binary.BigEndian.AppendUint32(append(text(nil, "Incarnation"), 0xce), incarnation),
		text(text(nil, "Node"), node),
	}
	if kind == alivePacket {
		fields = append(fields, text(text(nil, "Addr"), "\x7f\x00\x00\x01"), append(text(nil, "Port"), 0xcd, 0, 9),
			text(text(nil, "Meta"), ""), text(text(nil, "Vsn"), "\x01\x05\x02\x00\x00\x00"))
	} else {
		fields = append(fields, text(text(nil, "From"), "another"))
	}
	plain := append([]byte{kind, 0x80 | byte(len(fields))}, slices.Concat(fields...)...)
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	packet := append([]byte{1}, noise(12)...)
	return seal.Seal(packet, packet[1:], plain, nil)
}

// packets sends so many packets to the gossip's port, half of them with a wrong key but else as members do, and
// returns the changes they have caused. A member with the wrong key joins besides. Packets with the right key
// show that the wrong one is all that keeps the others from counting.
func (f *flood) packets(c *client.Client, n int) string {
	f.t.Helper()
	right, err := gossip.Key(f.key)
	if err != nil {
		f.t.Fatal(err)
	}
	join := func(node string, key []byte) *gossip.Gossip {
		f.t.Helper()
		o := gossip.Options{Node: admin.NodeID(node), Listen: "127.0.0.1:0", Join: []string{f.gossip}, JoinWait: time.Second, Keys: [][]byte{key}}
		g, err := gossip.Start(f.t.Context(), o, gossip.Member{State: gossip.Starting})
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { g.Close() })
		return g
	}
	join("n2", right)
	member := func(node, state string) {
		f.t.Helper()
		for end := time.Now().Add(time.Minute); f.member(c, node) != state; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				f.t.Fatalf("the daemon knows %s as %q, want %q\n%s", node, f.member(c, node), state, f.d.Log())
			}
		}
	}
	member("n2", "starting")
	conn, err := net.Dial("udp", f.gossip)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	wrong := noise(32)
	intruder := join("intruder", wrong)
	for i := range n {
		b := noise(1 + rand.IntN(1400))
		switch {
		case i%2 == 0:
			node := []string{"n1", "n2", fmt.Sprint("ghost", i)}[rand.IntN(3)]
			b = gossiped(f.t, wrong, suspectPacket+byte(rand.IntN(3)), node, 1000+uint32(i))
		case rand.IntN(2) == 0:
			b[0] = byte(rand.IntN(16))
		}
		_, _ = conn.Write(b)
	}
	if all := intruder.Members(); len(all) != 1 {
		f.t.Errorf("a member with another key knows %v", all)
	}
	// The daemon reads packets in their order, and these two come last.
	send := func(kind byte, node, state string) {
		f.t.Helper()
		for end := time.Now().Add(time.Minute); f.member(c, node) != state; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				f.t.Fatalf("with the right key %s is %q, not %q", node, f.member(c, node), state)
			}
			_, _ = conn.Write(gossiped(f.t, right, kind, node, 7)) // again: packets may be dropped where there are too many
		}
	}
	send(alivePacket, "control", "unknown")
	changed := 0
	for node, state := range f.members(c) {
		if want, ok := map[string]string{"n1": "ready", "n2": "starting", "control": "unknown"}[node]; !ok || state != want && state != "suspect" {
			changed++
			f.t.Errorf("after packets with another key %s is %s", node, state)
		}
	}
	if lines := regexp.MustCompile(`(?m)^.*a member left or failed.*$`).FindAllString(f.d.Log(), -1); len(lines) > 0 {
		changed += len(lines)
		f.t.Errorf("after packets with another key: %q", lines)
	}
	send(deadPacket, "control", "dead")
	return fmt.Sprintf("%d, and a member with another key, of which %d changed a member's state", n, changed)
}

// members returns the states of the daemon's members, by name.
func (f *flood) members(c *client.Client) map[string]string {
	f.t.Helper()
	nodes, err := admin.Nodes(f.t.Context(), c)
	if err != nil {
		f.t.Fatal(err)
	}
	states := map[string]string{}
	for _, n := range nodes {
		states[string(n.Name)] = n.State
	}
	return states
}

func (f *flood) member(c *client.Client, node string) string { return f.members(c)[node] }

var frame = regexp.MustCompile(`^#\t0x[0-9a-f]+\t(\S+)\+0x`)

// streamLoop is the goroutine that each stream of the namespace's server has.
const streamLoop = "/server.(*stream).internalLoop"

// goroutines counts the daemon's by where each began.
func (f *flood) goroutines() map[string]int {
	f.t.Helper()
	all := map[string]int{}
	_, text, _ := strings.Cut(f.profile(), "\n") // after the total
	for stack := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(stack), "\n")
		count, _, _ := strings.Cut(lines[0], " @ ")
		n, err := strconv.Atoi(count)
		if err != nil {
			f.t.Fatalf("a stack of another form: %q", stack)
		}
		began := "one without a stack"
		for _, line := range slices.Backward(lines) {
			if called := frame.FindStringSubmatch(line); called != nil && !strings.HasPrefix(called[1], "sync.") {
				began = called[1]
				break
			}
		}
		all[began] += n
	}
	return all
}

// grown names the goroutines of which there are more than before.
func grown(before, after map[string]int) string {
	var more []string
	for _, began := range slices.Sorted(maps.Keys(after)) {
		if n := after[began] - before[began]; n > 0 {
			more = append(more, fmt.Sprintf("%d × %s", n, began))
		}
	}
	return strings.Join(more, ", ")
}

// furnish gives others than the flood's user something of each kind to lose.
func (f *flood) furnish(c *client.Client, store string) {
	f.t.Helper()
	ctx, b := f.t.Context(), c.Buffer(goodBuffer)
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: goodBuffer, Backing: "file://" + store})
	must(err)
	for _, dir := range []string{"a", "b"} { // names that bad requests have
		must(b.MkdirAll(ctx, dir, 0o755))
	}
	must(b.WriteFile(ctx, "b/c", clustertest.Content(8, 10_000), 0o600))
	must(b.WriteFile(ctx, "f", clustertest.Content(7, 300_000), 0o600))
	_, err = admin.Drain(ctx, c, goodBuffer, time.Minute, nil)
	must(err)
	_, err = b.Begin(ctx, client.TxnSpec{Destination: "a", Lease: 24 * time.Hour})
	must(err)
	_, err = admin.OpenLifetime(ctx, c, admin.Lifetime{Key: "good-job", Cluster: "c", Job: "7", UID: floodUID + 1, GID: floodUID + 1}, admin.LifetimeOptions{})
	must(err)
}
