package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"forebay/client/admin"
	"forebay/internal/bb"
)

// progress shows how far long work has got: a bar with rate and time left on a terminal, or,
// with --progress=always, a line from time to time elsewhere. With --json it shows nothing.
type progress struct {
	a     *app
	what  string
	bar   *progressbar.ProgressBar
	lines bool
	began time.Time

	mu   sync.Mutex
	last time.Time
}

// figures are what is done of long work.
type figures struct{ files, filesTotal, bytes, bytesTotal int64 }

// lineEvery is how often a line is printed where there is no terminal.
const lineEvery = 10 * time.Second

// progressModes are the values of --progress.
var progressModes = []string{"auto", "always", "never"}

// checkProgress refuses a mode that there is not.
func checkProgress(mode string) error {
	if !slices.Contains(progressModes, mode) {
		return usage("--progress is " + strings.Join(progressModes, ", ") + "; not " + mode)
	}
	return nil
}

// showProgress decides how progress is shown.
func showProgress(mode string, json, terminal bool) (bar, lines bool) {
	if json || mode == "never" {
		return false, false
	}
	return terminal, !terminal && mode == "always"
}

func (a *app) progress(what string) *progress {
	now := time.Now()
	p := &progress{a: a, what: what, began: now, last: now}
	f, ok := a.err.(*os.File)
	var bar bool
	if bar, p.lines = showProgress(a.progressMode, a.json, ok && term.IsTerminal(int(f.Fd()))); bar {
		p.bar = newBar(a.err, what)
	}
	return p
}

// newBar returns a bar that is drawn when it is set, and only then: the goroutine with which the library turns
// a bar of unknown length reads the bar's start without its lock.
func newBar(w io.Writer, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions64(
		-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(true),
		progressbar.OptionShowTotalBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(),
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
}

// set shows how much is done.
func (p *progress) set(f figures) {
	if f.bytes > 0 || f.files > 0 {
		atomic.StoreUint32(&p.a.heard, 1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.bar != nil:
		if f.bytesTotal > 0 && p.bar.GetMax64() != f.bytesTotal {
			p.bar.ChangeMax64(f.bytesTotal)
		}
		if now.Sub(p.last) >= 100*time.Millisecond {
			p.last = now
			p.bar.Describe(filesLine(p.what, f))
		}
		p.bar.Set64(f.bytes)
	case p.lines && now.Sub(p.last) >= lineEvery:
		p.last = now
		fmt.Fprintln(p.a.err, progressLine(p.what, f, now.Sub(p.began)))
	}
}

// progressLine is what is printed where there is no terminal. Time left needs a rate.
func progressLine(what string, f figures, passed time.Duration) string {
	line := filesLine(what, f)
	if f.filesTotal == 0 && f.bytesTotal == 0 {
		return line // a removal, which knows no sizes
	}
	line += fmt.Sprintf(", %s of %s", size(f.bytes), size(f.bytesTotal))
	rate := float64(f.bytes) / max(passed.Seconds(), 1e-9)
	if f.bytes <= 0 || passed <= 0 {
		return line
	}
	line += fmt.Sprintf(", %s/s", size(int64(rate)))
	if left := f.bytesTotal - f.bytes; left > 0 {
		line += ", " + age(float64(left)/rate) + " left"
	}
	return line
}

// filesLine says how many files are done. How many there are may not be known.
func filesLine(what string, f figures) string {
	if f.filesTotal == 0 {
		return what + ": " + bb.Count(f.files, "file")
	}
	return fmt.Sprintf("%s: %d of %d files", what, f.files, f.filesTotal)
}

// update shows what the daemon reports.
func (p *progress) update(now admin.Progress) {
	p.set(figures{now.FilesDone, now.FilesTotal, now.BytesDone, now.BytesTotal})
}

func (p *progress) end() {
	if p.bar != nil {
		p.bar.Finish()
	}
}
