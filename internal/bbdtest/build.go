package bbdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is one build of bbd.
type binary struct {
	sync.Once
	path string
	err  error
}

func (b *binary) get(tb testing.TB, compile func() (string, error)) string {
	tb.Helper()
	b.Do(func() { b.path, b.err = compile() })
	if b.err != nil {
		tb.Fatal(b.err)
	}
	return b.path
}

var plain, clocked binary

// Binary returns the path of the bbd binary, which it builds once per test process.
func Binary(tb testing.TB) string {
	tb.Helper()
	return plain.get(tb, func() (string, error) { return compile("bbd") })
}

// clockEnv tells a daemon of clockBinary how many seconds its clock is ahead.
const clockEnv = "BBDTEST_CLOCK_AHEAD"

// clockBinary is bbd built with a standard library whose time.Now is ahead by what
// clockEnv says. No kernel gives a process another wall clock (time namespaces,
// time_namespaces(7), leave CLOCK_REALTIME out), and a static binary loads no library
// that could lie to it. So everything in the process believes in the wrong time, the
// libraries too, and the product has no switch for it.
func clockBinary(tb testing.TB) string {
	tb.Helper()
	return clocked.get(tb, func() (string, error) {
		dir, err := os.MkdirTemp("", "bbdtest-clock")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		overlay, err := clockOverlay(dir)
		if err != nil {
			return "", err
		}
		return compile("bbd-clock", "-overlay", overlay)
	})
}

// readClock is where time.Now of the standard library reads the clock.
const readClock = "sec, nsec, mono := runtimeNow()\n"

// aheadSource adds the offset to package time.
const aheadSource = `package time

import "syscall"

var secondsAhead = func() (n int64) {
	text, _ := syscall.Getenv("` + clockEnv + `")
	sign := int64(1)
	for _, digit := range text {
		if digit == '-' {
			sign = -1
			continue
		}
		n = n*10 + int64(digit-'0')
	}
	return sign * n
}()
`

// clockOverlay writes what package time is to be, for go build -overlay, into a
// folder, and returns the overlay's file.
func clockOverlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	std := filepath.Join(string(bytes.TrimSpace(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	head, now, found := strings.Cut(string(source), "func Now() Time {\n")
	now, rest, read := strings.Cut(now, readClock)
	if !found || !read || strings.TrimSpace(now) != "" {
		return "", fmt.Errorf("time.Now of %s does not begin with %q any more: clockOverlay has to learn how it reads the clock", std, readClock)
	}
	changed := head + "func Now() Time {\n\t" + readClock + "\tsec += secondsAhead\n" + rest
	files := map[string]string{"time.go": changed, "ahead.go": aheadSource}
	replace := map[string]string{}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(std, name)] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

func compile(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	root := filepath.Dir(string(bytes.TrimSpace(out)))
	path := filepath.Join(root, ".cache", "test", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// Packages are tested in parallel: one of them builds, the others find it built.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", path}, args...), "./cmd/bbd")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, text)
	}
	return path, nil
}
