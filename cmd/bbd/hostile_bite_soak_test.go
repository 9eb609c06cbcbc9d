//go:build soak

package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/internal/bbdtest"
	"forebay/internal/hostiletest"
)

// beforeMending is the last commit at which most kinds of attacks succeed, and beforeLimits the
// limits in its configuration.
const (
	beforeMending = "5354c45"
	beforeLimits  = "limits: {sessions: 64, waiters: 2000}\n"
)

// doomed is a test that has to fail, and keeps the reason.
type doomed struct {
	testing.TB
	mu  sync.Mutex
	why []string
}

func (d *doomed) failed(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.why = append(d.why, why)
}

func (d *doomed) Error(args ...any)                 { d.failed(fmt.Sprint(args...)) }
func (d *doomed) Errorf(format string, args ...any) { d.failed(fmt.Sprintf(format, args...)) }
func (d *doomed) Fatal(args ...any)                 { d.Error(args...); runtime.Goexit() }
func (d *doomed) Fatalf(format string, args ...any) { d.Errorf(format, args...); runtime.Goexit() }
func (d *doomed) Log(...any)                        {}
func (d *doomed) Logf(string, ...any)               {}

// reason is the first line of the first reason.
func (d *doomed) reason() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.why) == 0 {
		return ""
	}
	line, _, _ := strings.Cut(d.why[0], "\n")
	return line[:min(len(line), 300)]
}

// TestAttacksBite makes each kind of attack on a daemon that it succeeds against: as it was before, or without the
// guard against it. An attack that cannot succeed proves nothing about a daemon that it fails against.
// FOREBAY_ATTACK names kinds, with commas between them. "" means all.
func TestAttacksBite(t *testing.T) { withOwnMounts(t, testAttacksBite) }

func testAttacksBite(t *testing.T) {
	for _, kind := range hostiletest.Kinds() {
		if only := os.Getenv("FOREBAY_ATTACK"); only != "" && !slices.Contains(strings.Split(only, ","), kind) {
			continue
		}
		t.Run(strings.ReplaceAll(kind, " ", "-"), func(t *testing.T) {
			for _, over := range []transport{overTCP, overTLS} {
				if !hostiletest.Over(kind, over == overTLS) {
					continue
				}
				d := &doomed{TB: t}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					bites(d, kind, over)
				}()
				<-ended
				if d.reason() == "" {
					t.Errorf("over %v it does not succeed", over)
				}
				t.Logf("over %v: %s", over, d.reason())
				return
			}
		})
	}
}

// bites makes one attack of a kind on a daemon that does not withstand it.
func bites(t testing.TB, kind string, over transport) {
	d, limits := bbdtest.New(t), hostileLimits
	d.Behind = []string{"prlimit", "--data=4294967296"} // one of them reads /dev/zero to its end
	if edit, ok := guards[kind]; ok {
		d.Edits = []bbdtest.Edit{edit}
	} else {
		d.Commit, limits = beforeMending, beforeLimits
	}
	d.Build()
	attack(t, d, limits, over, hostiletest.Options{Seed: 1, Rounds: 1, Only: []string{kind}, Patience: time.Minute})
}
