package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"forebay/cmd/bbctl/layout"
)

// locked is output that a test reads while it is written.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) await(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		got := ansi.Strip(l.b.String())
		l.mu.Unlock()
		if strings.Contains(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q was never drawn in %q", want, got)
		}
	}
}

// The screen is drawn again as the status changes, shows since when no answer comes, and q ends it.
func TestWatch(t *testing.T) {
	var (
		mu    sync.Mutex
		state = "1111111" // no two texts share a letter at one place, so only changes are drawn
		err   error
	)
	set := func(s string, e error) {
		mu.Lock()
		defer mu.Unlock()
		state, err = s, e
	}
	s := &screen{every: 10 * time.Millisecond, now: time.Now, view: layout.View{Width: 60, Colour: true}}
	s.ask = func(context.Context) (*status, error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			return nil, err
		}
		return &status{own: Daemon{Node: "n1", State: state}}, nil
	}
	keys, press := io.Pipe()
	out, ended := &locked{}, make(chan error, 1)
	go func() { ended <- s.run(t.Context(), out, tea.WithInput(keys), tea.WithWindowSize(80, 24)) }()
	out.await(t, "node n1, 1111111")
	set("2222222", nil)
	out.await(t, "2222222")
	set("", errors.New("the daemon is away"))
	out.await(t, "answer")
	out.await(t, "away")
	set("3333333", nil)
	out.await(t, "3333333")
	if _, err := press.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("q does not end it")
	}
}

// No screen is wider or higher than its terminal, and all of it can be scrolled to.
func TestWatchFits(t *testing.T) {
	own := Daemon{Node: "n1", State: "ready"}
	for i := range 50 {
		own.Buffers = append(own.Buffers, bufferStatus{Name: fmt.Sprintf("buffer%02d", i), Backing: "file:///" + strings.Repeat("long/", 30)})
	}
	for _, size := range [][2]int{{80, 24}, {20, 10}, {8, 3}} {
		s := &screen{every: time.Second, now: time.Now, last: &status{own: own}}
		s.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		drawn := strings.Join(s.lines(), "\n")
		if !strings.Contains(drawn, "of ") && size[1] > 3 {
			t.Errorf("%v: it does not say that there is more:\n%s", size, drawn)
		}
		for range 60 {
			s.Update(tea.KeyPressMsg{Code: tea.KeyPgDown})
			drawn = strings.Join(s.lines(), "\n")
			lines := strings.Split(drawn, "\n")
			if len(lines) > size[1] && size[1] > 3 {
				t.Fatalf("%v: %d lines", size, len(lines))
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > size[0] {
					t.Fatalf("%v: %q", size, line)
				}
			}
		}
		if !strings.Contains(drawn, "buffer49") && size[0] == 80 {
			t.Errorf("%v: the end is out of reach:\n%s", size, drawn)
		}
		for range 60 {
			s.Update(tea.KeyPressMsg{Code: tea.KeyPgUp})
		}
		if s.lines(); s.top != 0 {
			t.Errorf("%v: the start is out of reach: %d", size, s.top)
		}
	}
}

// A screen ends with its context, as with --timeout.
func TestWatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &screen{every: time.Hour, now: time.Now}
	s.ask = func(ctx context.Context) (*status, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	keys, _ := io.Pipe()
	if err := s.run(ctx, io.Discard, tea.WithInput(keys), tea.WithWindowSize(80, 24)); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
