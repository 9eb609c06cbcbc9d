package node_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// BenchmarkEpilog runs epilogs, as processes, of jobs on a node with FOREBAY_DIRTY bytes that are
// on no store (default 64 MiB; those without room in memory are on disk). The first is that of the
// job that wrote them. It reports the median and the 99th of 100.
func BenchmarkEpilog(b *testing.B) {
	dirty, err := strconv.ParseInt(os.Getenv("FOREBAY_DIRTY"), 10, 64)
	if err != nil {
		dirty = 64 << 20
	}
	d := bbdtest.New(b)
	d.Config = fmt.Sprintf(`
name: n1
listen: {tcp: "127.77.0.1:7481", admin: "127.77.0.1:7480"}
cluster: {listen: "127.77.0.1:7483", advertise: "127.77.0.1"}
nats: {servers: "127.77.0.1"}
key_file: {{.Dir}}/key
memory: {size: %d, region_size: 1GiB}
disk: {dir: "{{.Dir}}", size: %d}
flush: {dirty_age: 24h}
`, min(dirty+dirty/4+(1<<30), 3<<30), dirty+dirty/4+(1<<30))
	if err := os.WriteFile(filepath.Join(d.Dir, "key"), []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		b.Fatal(err)
	}
	d.Start()
	c, err := client.Dial(b.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	bbctl, dir, store := bbdtest.Bbctl(b), b.TempDir(), b.TempDir()
	open := func(job string) string {
		key := "job-" + job
		l := admin.Lifetime{Key: key, Cluster: "lab", Job: job, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Buffer: key, ExpectedNodes: 1}
		// One byte a second, so that its files stay dirty.
		spec := admin.BufferSpec{Name: key, Backing: "file://" + store, FlushLimit: 1}
		if _, err := admin.OpenLifetime(b.Context(), c, l, admin.LifetimeOptions{Create: []admin.BufferSpec{spec}, Attach: true}); err != nil {
			b.Fatal(err)
		}
		note := fmt.Sprintf(`{"key":%q,"job":%q}`, key, job)
		if err := os.WriteFile(filepath.Join(dir, job+".json"), []byte(note), 0o600); err != nil {
			b.Fatal(err)
		}
		return key
	}
	epilog := func(job string) time.Duration {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, bbctl, "--socket", d.Socket, "slurm", "epilog", "--dir", dir)
		cmd.Env = append(os.Environ(), "SLURM_CLUSTER_NAME=lab", "SLURM_JOB_ID="+job, "SLURM_JOB_UID=0", "SLURM_JOB_GID=0")
		began := time.Now()
		out, err := cmd.CombinedOutput()
		took := time.Since(began)
		if left, _ := filepath.Glob(filepath.Join(dir, job+".*")); err != nil || len(left) > 0 {
			b.Fatalf("%s (%v); %v is left", out, err, left)
		}
		return took
	}
	large := c.Buffer(open("1"))
	for i := int64(0); i<<28 < dirty; i++ {
		f, err := large.Create(b.Context(), fmt.Sprint("f", i))
		if err != nil {
			b.Fatal(err)
		}
		piece := make([]byte, 4<<20)
		for n := int64(0); n < min(1<<28, dirty-i<<28); n += int64(len(piece)) {
			if _, err := f.Write(piece); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	next := 2
	for b.Loop() {
		b.StopTimer()
		if next == 2 {
			b.ReportMetric(epilog("1").Seconds()*1000, "ms/first")
		}
		var took []time.Duration
		for range 100 {
			job := strconv.Itoa(next)
			next++
			open(job)
			took = append(took, epilog(job))
		}
		slices.Sort(took)
		nodes, err := admin.Nodes(b.Context(), c)
		if err != nil || len(nodes) != 1 {
			b.Fatal(nodes, err)
		}
		b.ReportMetric(float64(nodes[0].Memory.Dirty+nodes[0].Disk.Dirty)/(1<<30), "GiB-dirty")
		b.ReportMetric(took[50].Seconds()*1000, "ms/median")
		b.ReportMetric(took[98].Seconds()*1000, "ms/99th")
		b.StartTimer()
	}
}
