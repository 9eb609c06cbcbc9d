package bbd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
)

// source makes a directory of count files.
func source(t *testing.T, dir string, count int) map[string][]byte {
	t.Helper()
	content := make(map[string][]byte, count)
	for i := range count {
		name := fmt.Sprintf("d%d/f%03d", i%7, i)
		content[name] = random(1000 + i)
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content[name], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return content
}

// slowly has a node's stores take a while for each request of a kind.
func (n *node) slowly(op string, delay time.Duration) {
	n.faults.Set(fault.Rule{Op: op, Kind: fault.Slow, Delay: delay})
}

func onlyOperation(t *testing.T, c *client.Client) admin.Operation {
	t.Helper()
	jobs, err := admin.Operations(t.Context(), c)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs: %+v (%v)", jobs, err)
	}
	return jobs[0]
}

// TestStageInOperation: a stage-in is split over all daemons, and the daemons that copied its files own
// them. Repeated, it copies nothing.
func TestStageInOperation(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "in"})
	from := t.TempDir()
	content := source(t, from, 500)
	for _, n := range nodes {
		n.slowly("get", 2*time.Millisecond)
	}
	r, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + from}, nil)
	if err != nil || r.FilesDone != 500 || r.FilesTotal != 500 || r.FilesSkipped != 0 {
		t.Fatalf("stage-in: %+v (%v)", r, err)
	}
	j, err := admin.OperationByID(t.Context(), nodes[2].dial(), onlyOperation(t, c).ID)
	if err != nil || j.State != "done" || j.Kind != "stage-in" || j.FilesDone != 500 || j.BytesDone != r.BytesDone || len(j.Nodes) != 3 {
		t.Errorf("the job: %+v (%v)", j, err)
	}
	for node, share := range j.Nodes {
		if share.Files == 0 {
			t.Errorf("%s did nothing", node)
		}
	}
	owners := map[admin.NodeID]int{}
	for name, want := range content {
		wantFile(t, b, "x/"+name, want)
		e, err := b.Stat(t.Context(), "x/"+name)
		if err != nil {
			t.Fatal(err)
		}
		owners[e.Holders[0]]++
	}
	if len(owners) != 3 {
		t.Errorf("the files are at %v", owners)
	}
	r, err = admin.StageIn(t.Context(), nodes[1].dial(), admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + from}, nil)
	if err != nil || r.FilesDone != 500 || r.FilesSkipped != 500 {
		t.Errorf("again: %+v (%v)", r, err)
	}
	// Out again, from wherever they are, and while some are dirty.
	to := t.TempDir()
	r, err = admin.StageOut(t.Context(), nodes[1].dial(), admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + to + "/out"}, nil)
	if err != nil || r.FilesDone != 500 {
		t.Fatalf("stage-out: %+v (%v)", r, err)
	}
	for name, want := range content {
		got, err := os.ReadFile(filepath.Join(to, "out", name))
		if err != nil || string(got) != string(want) {
			t.Fatalf("%s came out as %d bytes, want %d (%v)", name, len(got), len(want), err)
		}
	}
	drain(t, c, "in")
	if _, err := os.Stat(filepath.Join(dir, "x/d0/f000")); err != nil {
		t.Error(err)
	}
}

// TestStageInOperationReplaces: a file that is dirty at another node is replaced there.
func TestStageInOperationReplaces(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "in", NoFlush: []string{"*"}})
	from := t.TempDir()
	content := source(t, from, 20)
	for i := range 7 {
		if err := b.Mkdir(t.Context(), fmt.Sprint("d", i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name := range content {
		write(t, nodes[len(content[name])%2].dial().Buffer("in"), name, []byte("old"))
	}
	r, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", URL: "file://" + from}, nil)
	if err != nil || r.FilesDone != 20 || r.FilesTotal != 20 {
		t.Fatalf("stage-in: %+v (%v)", r, err)
	}
	for name, want := range content {
		wantFile(t, b, name, want)
	}
}

// TestOperationOutlivesDaemon: a daemon is stopped in the middle of a stage-in, which has submitted it,
// and the others do the rest. A client that requests the same from another daemon follows that operation,
// and copies nothing twice.
func TestOperationOutlivesDaemon(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	_, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "in"})
	content := source(t, dir, 300) // where the buffer flushes to; the files are clean
	for _, n := range nodes {
		n.slowly("get", 10*time.Millisecond)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", URL: "file://" + dir}, nil)
		asked <- err
	}()
	there := nodes[1].dial()
	eventually(t, "the job is under way", func() bool {
		jobs, err := admin.Operations(t.Context(), there)
		return err == nil && len(jobs) == 1 && jobs[0].TasksDone > 0 && jobs[0].Tasks > 4
	})
	c.Close()
	nodes[0].away()
	<-asked
	id := onlyOperation(t, there).ID
	again := make(chan admin.Report, 1)
	go func() {
		r, err := admin.StageIn(t.Context(), nodes[2].dial(), admin.StageRequest{Buffer: "in", URL: "file://" + dir}, nil)
		if err != nil {
			t.Error(err)
		}
		again <- r
	}()
	seen := 0
	j, err := admin.WatchOperation(t.Context(), there, id, func(admin.Operation) { seen++ })
	if r := <-again; r.FilesDone != 300 || r.FilesSkipped != 300 {
		t.Errorf("asked for again: %+v", r)
	}
	if err != nil || j.State != "done" || j.FilesDone != 300 || j.FailedTotal != 0 || seen < 2 {
		t.Errorf("watched %d times: %+v (%v)", seen, j, err)
	}
	b := there.Buffer("in")
	for name, want := range content {
		wantFile(t, b, name, want)
	}
}

func TestCancelOperation(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	nodes[0].buffer(c, admin.BufferSpec{Name: "in"})
	from := t.TempDir()
	source(t, from, 300)
	for _, n := range nodes {
		n.slowly("get", 100*time.Millisecond)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", URL: "file://" + from}, nil)
		asked <- err
	}()
	there := nodes[1].dial()
	eventually(t, "the job is under way", func() bool {
		jobs, err := admin.Operations(t.Context(), there)
		return err == nil && len(jobs) == 1 && jobs[0].Running > 0 && jobs[0].Tasks > 2
	})
	id := onlyOperation(t, there).ID
	if err := admin.CancelOperation(t.Context(), there, id); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; !errors.Is(err, client.ErrCancelled) {
		t.Errorf("who asked for it: %v", err)
	}
	if j, err := admin.OperationByID(t.Context(), c, id); err != nil || j.State != "cancelled" {
		t.Errorf("%+v (%v)", j, err)
	}
	if err := admin.CancelOperation(t.Context(), c, "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("cancelling a job that there is not: %v", err)
	}
}

// TestStageNothing: an error of a stage as a whole is the stage's error.
func TestStageNothing(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	nodes[0].buffer(c, admin.BufferSpec{Name: "in"})
	empty := t.TempDir()
	if _, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", URL: "file://" + empty + "/none"}, nil); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("from nowhere: %v", err)
	}
	if _, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "in", Path: "none", URL: "file://" + empty}, nil); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
	alone := startNode(t, nil)
	if _, err := admin.Operations(t.Context(), alone.dial()); !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("jobs of a daemon alone: %v", err)
	}
}

// TestDrainOwnerDies: an owner dies before it has done its part of a drain. Another daemon lists
// the unsaved files.
func TestDrainOwnerDies(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
	nodes[2].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, c.Buffer("b"), "here", random(1000))
	write(t, nodes[2].dial().Buffer("b"), "there", random(1000))
	type result struct {
		admin.Report
		error
	}
	asked := make(chan result, 1)
	go func() {
		r, err := admin.Drain(t.Context(), c, "b", 0, nil)
		asked <- result{r, err}
	}()
	eventually(t, "two of three have done their part", func() bool {
		j := onlyOperationOrNone(t, c)
		return j.Tasks == 4 && j.TasksDone == 3
	})
	nodes[2].away()
	r := <-asked
	// A file that was flushed before the drain began is no file of the drain.
	if r.error == nil || len(r.Failed) != 1 || r.Failed[0].Path != "there" || r.Failed[0].Kind != bb.Unavailable || r.FilesDone > 1 {
		t.Errorf("%+v (%v)", r.Report, r.error)
	}
	if e, err := c.Buffer("b").Stat(t.Context(), "here"); err != nil || e.State != client.StateClean {
		t.Errorf("the other file: %+v (%v)", e, err)
	}
}

func onlyOperationOrNone(t *testing.T, c *client.Client) admin.Operation {
	if jobs, err := admin.Operations(t.Context(), c); err == nil && len(jobs) == 1 {
		return jobs[0]
	}
	return admin.Operation{}
}

// TestClusterLimit: together, daemons do not write more than the cluster's limit.
func TestClusterLimit(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20
	nodes := startClusterWith(t, 3, func(c *bbd.Config) { c.Flush.ClusterLimit = limit })
	c := nodes[0].dial()
	nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
	began, size := time.Now(), 0
	for i, n := range nodes {
		there := n.dial().Buffer("b")
		for k := range 4 {
			content := random(2 << 20)
			size += len(content)
			write(t, there, fmt.Sprint(i, "-", k), content)
		}
	}
	drain(t, c, "b")
	// The burst of a limiter comes on top: 256 KiB for each.
	if least := time.Duration(float64(size-3*(256<<10)) / limit / 1.3 * float64(time.Second)); time.Since(began) < least {
		t.Errorf("%d bytes in %v, with a limit of %d a second", size, time.Since(began), limit)
	}
}

// TestStageInOperationNodeGone: a node that goes while files are copied takes its copies along. The
// stage-in names these files and fails, and so does the next one.
func TestStageInOperationNodeGone(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "in", NoFlush: []string{"*"}})
	from := t.TempDir()
	content := source(t, from, 500)
	// The others cannot end before the node is gone, since its messages while it stops are there then.
	others := nodes[:2]
	for _, n := range others {
		n.slowly("get", time.Second)
	}
	nodes[2].slowly("get", 5*time.Millisecond)
	var once sync.Once
	request := admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + from}
	stageIn := func(c *client.Client) map[string]bool {
		r, err := admin.StageIn(t.Context(), c, request, func(p admin.Progress) {
			if p.FilesDone >= 200 {
				once.Do(func() {
					nodes[2].away()
					for _, n := range others {
						n.faults.Set()
					}
				})
			}
		})
		if bb.KindOf(err) != bb.Unavailable || r.FailedTotal == 0 || r.FailedTotal != int64(len(r.Failed)) {
			t.Errorf("stage-in: %d failed, %d named (%v)", r.FailedTotal, len(r.Failed), err)
		}
		named := map[string]bool{}
		for _, f := range r.Failed {
			if named[f.Path] = true; f.Kind != bb.Unavailable || !strings.Contains(f.Reason, "n3") {
				t.Errorf("%s: %v: %s", f.Path, f.Kind, f.Reason)
			}
		}
		return named
	}
	named := stageIn(c)
	for name, want := range content {
		got, err := b.ReadFile(t.Context(), "x/"+name)
		if there := err == nil && string(got) == string(want); there == named["x/"+name] {
			t.Errorf("%s: named %t, read: %v", name, named["x/"+name], err)
		}
	}
	if again := stageIn(nodes[1].dial()); len(again) != len(named) {
		t.Errorf("%d files are named again, want %d", len(again), len(named))
	}
}
