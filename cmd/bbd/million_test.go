package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// Many small files: FOREBAY_MILLION is their number, or 20,000. The figures in docs/performance.md
// are of 1,000,000:
//
//	FOREBAY_MILLION=1000000 go test -run TestManySmallFiles -v -timeout 30m ./cmd/bbd
func TestManySmallFiles(t *testing.T) {
	files := 20_000
	if s := os.Getenv("FOREBAY_MILLION"); s != "" {
		var err error
		if files, err = strconv.Atoi(s); err != nil || files < 1 {
			t.Fatalf("FOREBAY_MILLION=%q is no number of files", s)
		}
	}
	const size, perDir, writers = 1 << 10, 10_000, 8
	memory := max(256<<20, int64(files)*size*3/2)
	d := bbdtest.Start(t, "--memory", strconv.FormatInt(memory, 10))
	c := dial(t, d)
	defer c.Close()
	ctx := t.Context()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "many"}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("many")
	dirs := (files + perDir - 1) / perDir
	for i := range dirs {
		if err := b.Mkdir(ctx, fmt.Sprint("d", i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := rssBeyondRegions(t, d.Pid())
	began := time.Now()
	createMany(t, b, files, perDir, writers, clustertest.Content(1, size))
	took := time.Since(began)

	memoryStatus := statusOf(t, c).Memory
	waste := 100 * float64(memoryStatus.Waste) / float64(memoryStatus.Used)
	after := rssBeyondRegions(t, d.Pid())
	t.Logf("%d files of %d bytes: %.0f creates/s, RSS beyond regions %d MiB (%d MiB before, %d bytes a file), waste %.2f %% of %d MiB used",
		files, size, float64(files)/took.Seconds(), after>>20, before>>20, (after-before)/int64(files), waste, memoryStatus.Used>>20)
	if waste >= 10 {
		t.Errorf("%.2f %% of memory are wasted", waste)
	}
	if memoryStatus.Live != int64(files)*size {
		t.Errorf("%d bytes are live, %d were written", memoryStatus.Live, files*size)
	}
	began = time.Now()
	for i := range dirs {
		seen := map[string]bool{}
		for e, err := range b.ReadDir(ctx, fmt.Sprint("d", i)) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[e.Name] || e.Size != size {
				t.Fatalf("%s of %d bytes is listed, before: %v", e.Path, e.Size, seen[e.Name])
			}
			seen[e.Name] = true
		}
		if want := min(perDir, files-i*perDir); len(seen) != want {
			t.Errorf("directory %d lists %d files, %d were made", i, len(seen), want)
		}
	}
	t.Logf("listed in %v", time.Since(began).Round(time.Millisecond))
}

// createMany writes the files with several writers on one session.
func createMany(t *testing.T, b *client.Buffer, files, perDir, writers int, text []byte) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < files; i += writers {
				if err := b.WriteFile(context.Background(), fmt.Sprintf("d%d/f%d", i/perDir, i), text, 0o644); err != nil {
					t.Errorf("file %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// rssBeyondRegions is the memory that a process has of its own: its resident pages but
// those of shared files (proc_pid_status(5)), in bytes.
func rssBeyondRegions(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("the kernel does not report the resident pages")
	return 0
}
