package populate

import (
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory counts its steps, which wait until they may continue.
type memory struct {
	steps   int
	done    atomic.Int64
	entered chan int
	goOn    chan struct{}
}

func (m *memory) Steps() int { return m.steps }

func (m *memory) PopulateStep(step int) error {
	m.entered <- step
	<-m.goOn
	m.done.Add(1)
	return nil
}

func newMemory(steps int) *memory {
	return &memory{steps: steps, entered: make(chan int, steps), goOn: make(chan struct{})}
}

// TestForget: queued work for some memory is dropped, and work under way has ended.
func TestForget(t *testing.T) {
	t.Parallel()
	var p Populator[*memory]
	told := make(chan int, 20)
	p.Start(2, func(_ *memory, step int, _ error) { told <- step })
	a, b := newMemory(10), newMemory(3)
	p.Add(a)
	p.Add(b)
	<-a.entered
	<-a.entered // as many as there are threads
	if !p.Busy() {
		t.Error("two steps are under way, and it is not busy")
	}
	forgotten := make(chan struct{})
	go func() { p.Forget(a); close(forgotten) }()
	close(b.goOn)
	close(a.goOn)
	<-forgotten
	if n, begun := a.done.Load(), 2+int64(len(a.entered)); n != begun {
		t.Errorf("%d steps were done, %d had begun", n, begun)
	}
	for b.done.Load() < 3 {
		<-b.entered
	}
	p.Close()
	if p.Busy() {
		t.Error("it is busy after Close")
	}
	p.Add(newMemory(1)) // nothing comes of it
	if int64(len(told)) != a.done.Load()+3 {
		t.Errorf("told of %d steps, %d were done", len(told), a.done.Load()+3)
	}
}
