package nslog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/stream"
)

// powered is a namespace in a simulated log.
type powered struct {
	t   *testing.T
	log *simulated
	e   *nslog.Engine
	n   int
}

func startPowered(t *testing.T, settle time.Duration) *powered {
	t.Helper()
	p := &powered{t: t, log: &simulated{}}
	p.start(settle)
	return p
}

func (p *powered) start(settle time.Duration) {
	p.t.Helper()
	time.Sleep(time.Millisecond) // no two claims in one microsecond
	p.e = openOn(p.t, &process{simulated: p.log, rnd: rand.New(rand.NewPCG(1, 2))}, nslog.Options{Node: "me", Settle: settle})
}

// write makes changes on several pages, and writes a checkpoint.
func (p *powered) write() {
	p.t.Helper()
	for range 700 {
		p.n++
		namespacetest.Create(p.t, p.e, bb.RootDir, fmt.Sprint("f", p.n))
	}
	if p.n > 700 {
		if _, err := p.e.Update(metatest.Context(p.t), bb.RootDir, "f1", func(e *bb.Entry) error { e.Size++; return nil }); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.e.Checkpoint(metatest.Context(p.t)); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait() // for the purger
}

// want compares the result of a start.
func (p *powered) want(what string, want contents) {
	p.t.Helper()
	p.e.Close()
	p.start(0)
	if got := contentsOf(p.t, p.e); !reflect.DeepEqual(got, want) {
		p.t.Errorf("%s: %d names, want %d", what, len(got.entries[bb.RootDir]), len(want.entries[bb.RootDir]))
	}
}

// A loss of power loses records since the server's last sync, and none before it, with checkpoints
// made and purged at any point meanwhile.
func TestLossOfPower(t *testing.T) {
	t.Parallel()
	for _, settle := range []time.Duration{0, time.Minute} {
		for _, checkpoints := range []int{1, 3} {
			if settle == 0 && checkpoints > 1 {
				continue // then the records are synced
			}
			synctest.Test(t, func(t *testing.T) {
				p := startPowered(t, settle)
				p.write()
				p.write()
				time.Sleep(2 * settle)
				want, synced := contentsOf(t, p.e), p.log.last
				for range checkpoints {
					p.write()
				}
				p.e.Close()
				p.log.setBack(synced)
				p.want(fmt.Sprint("settle ", settle, ", ", checkpoints, " checkpoints later"), want)
				p.e.Close()
			})
		}
	}
}

// Purges have a bound. Two checkpoints stay, once they are settled.
func TestSettledCheckpointsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPowered(t, time.Minute)
		for range 5 {
			p.write()
		}
		time.Sleep(2 * time.Minute)
		p.write()
		manifests := 0
		for _, m := range p.log.messages {
			if m.Subject == "manifest" {
				manifests++
			}
		}
		if manifests != 2 {
			t.Errorf("%d manifests are left, want 2", manifests)
		}
		p.e.Close()
	})
}

// If the newest checkpoint is torn, a start reads the one before, and the log.
func TestTornCheckpoint(t *testing.T) {
	t.Parallel()
	newest := func(s *simulated, prefix string) *stream.Message {
		for i := range slices.Backward(s.messages) {
			if strings.HasPrefix(s.messages[i].Subject, prefix) {
				return &s.messages[i]
			}
		}
		return nil
	}
	for what, tear := range map[string]func(*simulated){
		"a damaged manifest": func(s *simulated) { newest(s, "manifest").Data[12] ^= 1 },
		"a short manifest":   func(s *simulated) { m := newest(s, "manifest"); m.Data = m.Data[:5] },
		"a damaged page": func(s *simulated) {
			m := newest(s, "page.0")
			m.Data[len(m.Data)/2] ^= 1
		},
		"a page that is gone": func(s *simulated) {
			gone := newest(s, "page.0").Seq
			s.messages = slices.DeleteFunc(s.messages, func(m stream.Message) bool { return m.Seq == gone })
		},
		"all pages and the manifest": func(s *simulated) {
			second := newest(s, "manifest")
			for i := range s.messages {
				if m := &s.messages[i]; m.Subject != "log" && m.Seq > second.Seq-3 {
					m.Data[len(m.Data)-1] ^= 1
				}
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := startPowered(t, 0)
			for range 3 {
				p.write()
			}
			namespacetest.Create(t, p.e, bb.RootDir, "late")
			want := contentsOf(t, p.e)
			p.e.Close()
			tear(p.log)
			p.want(what, want)
			namespacetest.Create(t, p.e, bb.RootDir, "later") // and it is repaired by a checkpoint
			synctest.Wait()
			want = contentsOf(t, p.e)
			p.want(what+", and the next start", want)
			if m := newest(p.log, "page.0"); what == "a damaged page" && m.Seq < newest(p.log, "log").Seq-4 {
				t.Errorf("%s: it was not stored again", what)
			}
			p.e.Close()
		})
	}
}

// The first checkpoint has none before it. A start that cannot read it reads the whole log.
func TestTornFirstCheckpoint(t *testing.T) {
	t.Parallel()
	for what, tear := range map[string]func(*simulated){
		"a damaged page":     func(s *simulated) { s.tear("page.0") },
		"a damaged manifest": func(s *simulated) { s.tear("manifest") },
		"a damaged page, and no manifest": func(s *simulated) {
			s.tear("page.0")
			s.messages = slices.DeleteFunc(s.messages, func(m stream.Message) bool { return m.Subject == "manifest" })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := startPowered(t, 0)
			p.write()
			namespacetest.Create(t, p.e, bb.RootDir, "late")
			want := contentsOf(t, p.e)
			p.e.Close()
			tear(p.log)
			p.want(what, want)
			p.write()
			want = contentsOf(t, p.e)
			p.want(what+", and the next start", want)
			p.e.Close()
		})
	}
}

// tear damages the newest message under a subject.
func (s *simulated) tear(subject string) {
	for i := range slices.Backward(s.messages) {
		if m := &s.messages[i]; m.Subject == subject {
			m.Data[len(m.Data)/2] ^= 1
			return
		}
	}
}

// Entries that an owner has stored again, after the server had lost them, are not in the records. So a
// start that cannot read their checkpoint does not use an older one, even if pages are whole.
func TestTornCheckpointOfRestored(t *testing.T) {
	t.Parallel()
	for _, torn := range []string{"page.0", "page.1", "manifest"} {
		synctest.Test(t, func(t *testing.T) {
			p := startPowered(t, time.Hour)
			p.write()
			p.write() // two pages
			forgets := p.log.last
			for i := range 20 {
				namespacetest.Create(t, p.e, bb.RootDir, fmt.Sprint("forgotten", i))
			}
			p.log.setBack(forgets)
			namespacetest.Create(t, p.e, bb.RootDir, "after")
			want := contentsOf(t, p.e)
			p.want("whole", want)
			p.e.Close()
			p.log.tear(torn)
			p.e = nil
			_, err := nslog.Open(metatest.Context(t), &process{simulated: p.log, rnd: rand.New(rand.NewPCG(1, 2))}, newIDs(), nslog.Options{Buffer: "buf"})
			if k := bb.KindOf(err); k != bb.Lost && k != bb.Checksum {
				t.Fatalf("without the newest %s: %v", torn, err)
			}
		})
	}
}

// A daemon that is killed while it stores lost records again leaves the log unchanged.
func TestKilledWhileRestoring(t *testing.T) {
	t.Parallel()
	for appends := range 4 {
		synctest.Test(t, func(t *testing.T) {
			s := &simulated{}
			log := &failing{Log: &process{simulated: s, rnd: rand.New(rand.NewPCG(1, 2))}}
			e := openOn(t, log, nslog.Options{Node: "me"})
			for i := range 1500 { // on two pages
				namespacetest.Create(t, e, bb.RootDir, fmt.Sprint("f", i))
			}
			forgets, want := s.last, contentsOf(t, e)
			for i := range 20 {
				if _, err := e.Rename(metatest.Context(t), bb.RootDir, fmt.Sprint("f", i), bb.RootDir, fmt.Sprint("g", i), namespace.RenameOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			s.setBack(forgets)
			log.failAfter(1+appends, 1<<30, bb.E(bb.NoSpace, "append", "log", "the disk is full")) // the first one finds it out
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := e.Update(ctx, bb.RootDir, "f100", func(*bb.Entry) error { return nil }); err == nil {
				t.Errorf("after %d appends it was stored again", appends)
			}
			e.Close()
			time.Sleep(time.Millisecond)
			next, err := nslog.Open(metatest.Context(t), &process{simulated: s, rnd: rand.New(rand.NewPCG(1, 2))}, newIDs(), nslog.Options{Buffer: "buf"})
			if appends == 3 { // the claim is stored, and the manifest is not
				if bb.KindOf(err) != bb.Lost {
					t.Errorf("after the claim: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := contentsOf(t, next); !reflect.DeepEqual(got, want) {
				t.Errorf("after %d appends it is neither what it was nor what it is", appends)
			}
			next.Close()
		})
	}
}
