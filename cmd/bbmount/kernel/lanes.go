package kernel

import (
	"sync"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
)

// atOnce bounds the steps that run at a time, since each one that waits in the kernel keeps a thread.
const atOnce = 256

// lanes runs steps about names: those of a directory one after the other, in their order, those of several directories beside
// each other. A step may wait in the kernel for a look-up in its directory. Its methods may be called concurrently.
type lanes struct {
	places chan struct{} // one for each step that runs
	all    sync.WaitGroup

	mu sync.Mutex
	of map[*fusefs.Inode]*lane // of directories with steps
}

// lane are the steps of a directory that have not begun.
type lane struct {
	steps []step
	has   map[about]bool
}

type step struct {
	about
	do func()
}

// about is the kind and the name of a step. A step looks at the name when it runs. So one that has not begun stands for all
// later ones of its kind and name.
type about struct {
	kind kind
	name string
}

type kind uint8

func newLanes() *lanes {
	return &lanes{places: make(chan struct{}, atOnce), of: map[*fusefs.Inode]*lane{}}
}

// add queues a step. It does not wait for the step to run.
func (l *lanes) add(dir *fusefs.Inode, a about, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of[dir]
	if of == nil {
		of = &lane{has: map[about]bool{}}
		l.of[dir] = of
		l.all.Go(func() { l.run(dir, of) })
	}
	if !of.has[a] {
		of.has[a] = true
		of.steps = append(of.steps, step{a, do})
	}
}

// run runs the steps of a directory until none is left.
func (l *lanes) run(dir *fusefs.Inode, of *lane) {
	for {
		l.places <- struct{}{}
		do := l.next(dir, of)
		if do != nil {
			do()
		}
		<-l.places
		if do == nil {
			return
		}
	}
}

// next takes the next step of a directory. It returns nil, and ends the lane, if there is none.
func (l *lanes) next(dir *fusefs.Inode, of *lane) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(of.steps) == 0 {
		delete(l.of, dir)
		return nil
	}
	s := of.steps[0]
	of.steps = of.steps[1:]
	delete(of.has, s.about)
	return s.do
}

// wait returns when no step is left. None is added meanwhile.
func (l *lanes) wait() { l.all.Wait() }
