package clustertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/client"
)

// readers are how many files an observer reads at a time.
const readers = 8

// Observe reads all that there is in a buffer from one node, and the paths that
// journals name. It fails if it cannot even list. Each operation has a deadline.
func Observe(ctx context.Context, o client.Options, buffer string, journals []Journal, deadline time.Duration) (Observation, error) {
	c, err := client.Dial(ctx, o)
	if err != nil {
		return Observation{}, err
	}
	defer c.Close()
	v := observer{b: c.Buffer(buffer), deadline: deadline, o: Observation{Node: string(c.Server().Node), Files: map[string]Seen{}}}
	paths := named(journals)
	err = v.timed(ctx, "listing everything", func(ctx context.Context) error {
		for e, err := range v.b.Walk(ctx, "") {
			if err != nil {
				return err
			}
			if !e.IsDir() {
				paths[e.Path] = true
			}
		}
		return nil
	})
	if err != nil {
		return v.o, err
	}
	var work errgroup.Group
	work.SetLimit(readers)
	for p := range paths {
		work.Go(func() error {
			v.look(ctx, p)
			return nil
		})
	}
	work.Wait()
	return v.o, v.timed(ctx, "listing what is lost", func(ctx context.Context) error {
		lost, err := c.Buffer(buffer).Lost(ctx)
		for _, e := range lost {
			v.o.Lost = append(v.o.Lost, e.Path)
		}
		return err
	})
}

// named are the paths of files that journals name.
func named(journals []Journal) set[string] {
	paths := set[string]{}
	for _, j := range journals {
		for _, r := range j.Records {
			if r.Op != List {
				paths[r.Path] = true
			}
			if r.To != "" {
				paths[r.To] = true
			}
		}
	}
	return paths
}

type observer struct {
	b        *client.Buffer
	deadline time.Duration
	mu       sync.Mutex
	o        Observation // guarded by mu
}

func (v *observer) timed(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, v.deadline)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	if took := time.Since(began); took > v.deadline+slack {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.o.Slow = append(v.o.Slow, fmt.Sprintf("%s took %v, and had %v", what, took, v.deadline))
	}
	return err
}

func (v *observer) look(ctx context.Context, path string) {
	var s Seen
	err := v.timed(ctx, "reading "+path, func(ctx context.Context) error {
		p, err := v.b.ReadFile(ctx, path)
		if err == nil {
			s.Version, err = identify(path, p)
		}
		return err
	})
	if err != nil {
		s.Kind, s.Why = client.KindOf(err), err.Error()
		if s.Kind != client.ErrNotFound {
			v.timed(ctx, "describing "+path, func(ctx context.Context) error {
				e, err := v.b.Stat(ctx, path)
				s.Holders = holders(e)
				return err
			})
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.o.Files[path] = s
}
