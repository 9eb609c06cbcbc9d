//go:build power

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
	"forebay/internal/powertest"
)

// One machine runs a daemon with its state, its disk tier and its store on one journaled file
// system. The machine is emulated, and its power is cut. The emulator is killed, and with it go the
// memory, the page cache, and some of the drive's write cache. The clients and the history are
// here, outside. scripts/power.sh makes the machine's files.

const (
	machineCuts = 5               // or FOREBAY_KILLS
	bootTime    = 4 * time.Minute // the machine may be emulated without help of the processor
)

// machine is an emulated machine, and its disk, which stays.
type machine struct {
	drive   *powertest.Drive
	log     *os.File
	store   string // where the store is sent from, as a tar archive
	daemon  string // where the daemon serves
	env     []string
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

func newMachine(t *testing.T, env ...string) *machine {
	t.Helper()
	files := os.Getenv("FOREBAY_GUEST")
	if files == "" {
		t.Fatal("scripts/power.sh runs this test")
	}
	dir := t.TempDir()
	drive, err := powertest.NewDrive(filepath.Join(files, "disk.ext4"), filepath.Join(dir, "drive"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(files, strings.ReplaceAll(t.Name(), "/", "-")+".log"))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{drive: drive, log: log, env: env, store: bbdtest.FreePort(t, "127.0.0.1"), daemon: bbdtest.FreePort(t, "127.0.0.1")}
	t.Cleanup(func() {
		m.off()
		if err := drive.Close(); err != nil {
			t.Error(err)
		}
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the machine's console: %s\n%s", log.Name(), text[max(0, len(text)-8<<10):])
		}
	})
	return m
}

// boot starts the machine. Its daemon starts when the store was read.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	forward := func(from, to string) string { return fmt.Sprintf(",hostfwd=tcp:%s-10.0.2.15:%s", from, to) }
	m.process = exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024",
		"-kernel", os.Getenv("FOREBAY_GUEST_KERNEL"), "-initrd", filepath.Join(os.Getenv("FOREBAY_GUEST"), "initramfs.gz"),
		"-append", strings.Join(append([]string{"console=ttyS0 quiet panic=-1"}, m.env...), " "),
		"-nographic", "-no-reboot", "-monitor", "none", "-serial", "stdio",
		"-drive", "if=virtio,format=raw,file=nbd+unix:///?socket="+m.drive.Path,
		"-netdev", "user,id=net"+forward(m.store, "7000")+forward(m.daemon, "7481"), "-device", "virtio-net-pci,netdev=net")
	m.process.Stdout, m.process.Stderr = m.log, m.log
	if err := m.process.Start(); err != nil {
		m.process = nil
		t.Fatal(err)
	}
	m.ended = make(chan struct{})
	process := m.process
	go func() {
		defer close(m.ended)
		process.Wait()
	}()
}

// until tries something until it succeeds.
func (m *machine) until(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.After(bootTime)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-m.ended:
			t.Fatalf("the machine is off, and %s failed: %v", what, err)
		case <-deadline:
			t.Fatalf("%s fails for %v: %v", what, bootTime, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// off kills the machine.
func (m *machine) off() {
	if m.process != nil {
		m.process.Process.Kill()
		<-m.ended
		m.process = nil
	}
}

// cut cuts the power of a drive that loses writes.
func (m *machine) cut(t *testing.T, rng *rand.Rand) {
	m.off()
	cached, kept := m.drive.Lose(rng)
	t.Logf("%d writes were in the drive's cache, %d of them survived", cached, kept)
}

// files reads the store.
func (m *machine) files(t *testing.T) map[string][]byte {
	t.Helper()
	var files map[string][]byte
	m.until(t, "reading the store", func() (err error) {
		files, err = m.tryFiles()
		return err
	})
	return files
}

func (m *machine) tryFiles() (map[string][]byte, error) {
	conn, err := net.Dial("tcp", m.store)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	sent, err := io.ReadAll(conn)
	if err != nil {
		return nil, err
	}
	archive, whole := bytes.CutSuffix(sent, []byte("complete\n"))
	if !whole {
		return nil, fmt.Errorf("%d bytes of an archive that is not whole", len(sent))
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg && !strings.HasPrefix(path.Base(h.Name), ".forebay-") {
			if files[path.Clean(h.Name)], err = io.ReadAll(r); err != nil {
				return nil, err
			}
		}
	}
}

// dial waits until the daemon serves.
func (m *machine) dial(t *testing.T) *client.Client {
	t.Helper()
	var c *client.Client
	m.until(t, "dialling the daemon", func() (err error) {
		c, err = client.Dial(t.Context(), client.Options{Address: "tcp://" + m.daemon, RetryFor: -1, User: &client.User{}})
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// drainer drains a buffer again and again.
type drainer struct {
	buffer string
	past   *durabletest.History
	done   int
}

func (d *drainer) run(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		begin := d.past.Now()
		report, err := admin.Drain(ctx, c, d.buffer, drainTime, nil)
		if err != nil && (client.KindOf(err) != client.ErrBusy || report.OpenTotal != int64(len(report.Open)) || report.HeldTotal > 0) {
			return
		}
		d.past.Drained(begin, "", report.Open)
		d.done++
	}
}

func (d *drainer) look(context.Context, *client.Buffer, map[string]durabletest.Found) error {
	return nil
}

func (d *drainer) counts() map[string]int { return map[string]int{"drain": d.done} }

// machineRounds are the buffers of a machine: one that is drained again and again, one that is
// flushed at each close, one whose files belong on the disk tier.
func machineRounds(t *testing.T, m *machine, seed uint64, found map[string]map[string][]byte) []*rounds {
	t.Helper()
	specs := []admin.BufferSpec{
		{Name: "crash", Backing: "file:///disk/store/crash"},
		{Name: "flushed", Backing: "file:///disk/store/flushed", Durability: admin.DurabilityFlushed},
		{Name: "tier", Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}}},
	}
	var all []*rounds
	for n, spec := range specs {
		r := &rounds{buffer: spec.Name, past: durabletest.NewHistory(), dial: m.dial, walks: true}
		if spec.Backing != "" {
			r.store = func(*testing.T) map[string][]byte { return found[spec.Name] }
		}
		crashers := make([]*crasher, 2)
		for i := range crashers {
			crashers[i] = newCrasher(t, i, r.past)
			crashers[i].rng = rand.New(rand.NewPCG(seed, uint64(n*10+i)))
			if spec.Durability == admin.DurabilityFlushed {
				crashers[i].keeps = durabletest.OnStore
			}
			r.workers = append(r.workers, crashers[i])
		}
		r.make(t, spec, crashers)
		if spec.Name == "crash" {
			r.workers = append(r.workers, &drainer{buffer: r.buffer, past: r.past})
		}
		all = append(all, r)
	}
	return all
}

// workAll has the clients of all buffers work at the same time.
func workAll(t *testing.T, all []*rounds, end func()) {
	t.Helper()
	if len(all) == 0 {
		end()
		return
	}
	all[0].work(t, func() { workAll(t, all[1:], end) })
}

// acknowledge removes the files that were lost, as their owner would.
func acknowledge(t *testing.T, r *rounds, lost []string) {
	t.Helper()
	c := r.dial(t)
	defer c.Close()
	for _, name := range lost {
		ended := r.past.Begin(durabletest.Event{Op: durabletest.Remove, Changes: []durabletest.Change{{Path: name}}})
		if err := c.Buffer(r.buffer).Remove(t.Context(), name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: removing a lost file: %v", r.buffer, err)
		}
		ended(durabletest.Done)
	}
}

func machineSeed(t *testing.T) uint64 {
	seed, err := strconv.ParseUint(os.Getenv("FOREBAY_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano() % 1e6)
	}
	t.Logf("FOREBAY_SEED=%d", seed)
	return seed
}

// TestPowerCutOfMachine: objects of a drain, of a close in a flushed buffer or of a rename in it
// are there after a cut of the power, bit for bit. Files of memory alone are named lost, and
// nothing is silently wrong or absent.
func TestPowerCutOfMachine(t *testing.T) {
	cuts := machineCuts
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_KILLS")); err == nil {
		cuts = n
	}
	seed := machineSeed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	m := newMachine(t, "FOREBAY_NATS_EMBEDDED_SYNC_INTERVAL=0s")
	found := map[string]map[string][]byte{}
	start := func() {
		m.boot(t)
		clear(found)
		for name, p := range m.files(t) {
			buffer, in, _ := strings.Cut(name, "/")
			if found[buffer] == nil {
				found[buffer] = map[string][]byte{}
			}
			found[buffer][in] = p
		}
	}
	start()
	all := machineRounds(t, m, seed, found)
	there, lost := 0, 0
	for cut := range cuts {
		workAll(t, all, func() {
			time.Sleep(3*time.Second + time.Duration(rng.IntN(4000))*time.Millisecond)
			m.cut(t, rng)
		})
		began := time.Now()
		start()
		when := fmt.Sprintf("after cut %d", cut+1)
		for _, r := range all {
			r.over(t, durabletest.Event{Takes: durabletest.InMemory}, when+" of "+r.buffer)
			o := r.look(t, when+" of "+r.buffer)
			acknowledge(t, r, o.Lost)
			lost += len(o.Lost)
			for _, f := range o.Files {
				if f.Version.There {
					there++
				}
			}
		}
		t.Logf("%s: %d files were there so far, %d lost; %v until judged", when, there, lost, time.Since(began).Round(time.Second))
		if t.Failed() {
			t.FailNow()
		}
	}
	all[0].enough(t, cuts, "write", "append", "overwrite", "rename", "remove", "read", "drain")
	all[1].enough(t, cuts, "write", "rename")
	all[2].enough(t, cuts, "write")
	if lost == 0 {
		t.Error("nothing was ever only in memory: the test does not test")
	}
}
