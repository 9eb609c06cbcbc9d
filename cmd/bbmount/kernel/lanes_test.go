package kernel

import (
	"slices"
	"sync"
	"testing"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLanes has a step wait. Others of its directory come after it, once each and in order, those of other directories
// before it.
func TestLanes(t *testing.T) {
	l, blocked, other := newLanes(), new(fusefs.Inode), new(fusefs.Inode)
	begun, end := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var ran []string
	note := func(name string) func() {
		return func() {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, name)
		}
	}
	l.add(blocked, about{check, "a"}, func() {
		close(begun)
		<-end
		note("first a")()
	})
	<-begun
	for range 3 {
		l.add(blocked, about{check, "a"}, note("a"))
		l.add(blocked, about{drop, "a"}, note("drop of a"))
		l.add(blocked, about{check, "b"}, note("b"))
	}
	elsewhere := make(chan struct{})
	l.add(other, about{check, "a"}, func() { close(elsewhere) })
	<-elsewhere
	if len(ran) > 0 {
		t.Fatalf("steps beside the one that waits: %q", ran)
	}
	close(end)
	l.wait()
	l.add(blocked, about{check, "a"}, note("a, again"))
	l.wait()
	if want := []string{"first a", "a", "drop of a", "b", "a, again"}; !slices.Equal(ran, want) {
		t.Errorf("steps: %q, should be %q", ran, want)
	}
	if len(l.of) > 0 {
		t.Errorf("%d directories are left", len(l.of))
	}
}

// TestLanesAtOnce has more steps wait than may run at a time. All of them run.
func TestLanesAtOnce(t *testing.T) {
	l, end := newLanes(), make(chan struct{})
	var mu sync.Mutex
	var most, running, ran int
	full := make(chan struct{})
	const steps = atOnce + 50
	for range steps {
		l.add(new(fusefs.Inode), about{}, func() {
			mu.Lock()
			running, ran = running+1, ran+1
			most = max(most, running)
			if ran == atOnce {
				close(full)
			}
			mu.Unlock()
			<-end
			mu.Lock()
			running--
			mu.Unlock()
		})
	}
	<-full
	close(end)
	l.wait()
	if most != atOnce || ran != steps {
		t.Errorf("%d steps at once, of %d that ran", most, ran)
	}
}
