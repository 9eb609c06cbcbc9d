package app

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"forebay/client/admin"
	"forebay/internal/bb"
)

// Progress shows the progress of long work: a bar with rate and time left on a terminal, or, with
// --progress=always, a line from time to time elsewhere. With --json it shows nothing.
type Progress struct {
	a     *App
	what  string
	Bar   *progressbar.ProgressBar
	Lines bool
	began time.Time

	mu   sync.Mutex
	last time.Time
}

// Figures are the finished part of long work.
type Figures struct{ Files, FilesTotal, Bytes, BytesTotal int64 }

// lineEvery is how often a line is printed where there is no terminal.
const lineEvery = 10 * time.Second

// ProgressModes are the values of --progress.
var ProgressModes = []string{"auto", "always", "never"}

// checkProgress refuses a mode that there is not.
func checkProgress(mode string) error {
	if !slices.Contains(ProgressModes, mode) {
		return Usage("--progress is " + strings.Join(ProgressModes, ", ") + "; not " + mode)
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

func (a *App) Progress(what string) *Progress {
	now := time.Now()
	p := &Progress{a: a, what: what, began: now, last: now}
	f, ok := a.Err.(*os.File)
	var bar bool
	if bar, p.Lines = showProgress(a.ProgressMode, a.JSON, ok && term.IsTerminal(int(f.Fd()))); bar {
		p.Bar = newBar(a.Err, what)
	}
	return p
}

// newBar returns a bar that is drawn when it is set, and only then. The goroutine with which the library turns
// a bar of unknown length reads the bar's start without its lock.
func newBar(w io.Writer, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions64(
		-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(true),
		progressbar.OptionShowTotalBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(),
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
}

// Set shows how much is done.
func (p *Progress) Set(f Figures) {
	if f.Bytes > 0 || f.Files > 0 {
		p.a.SetHeard()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.Bar != nil:
		if f.BytesTotal > 0 && p.Bar.GetMax64() != f.BytesTotal {
			p.Bar.ChangeMax64(f.BytesTotal)
		}
		if now.Sub(p.last) >= 100*time.Millisecond {
			p.last = now
			p.Bar.Describe(filesLine(p.what, f))
		}
		p.Bar.Set64(f.Bytes)
	case p.Lines && now.Sub(p.last) >= lineEvery:
		p.last = now
		fmt.Fprintln(p.a.Err, progressLine(p.what, f, now.Sub(p.began)))
	}
}

// progressLine is the line where there is no terminal. Time left needs a rate.
func progressLine(what string, f Figures, passed time.Duration) string {
	line := filesLine(what, f)
	if f.FilesTotal == 0 && f.BytesTotal == 0 {
		return line // a removal, which has no sizes
	}
	line += fmt.Sprintf(", %s of %s", Size(f.Bytes), Size(f.BytesTotal))
	rate := float64(f.Bytes) / max(passed.Seconds(), 1e-9)
	if f.Bytes <= 0 || passed <= 0 {
		return line
	}
	line += fmt.Sprintf(", %s/s", Size(int64(rate)))
	if left := f.BytesTotal - f.Bytes; left > 0 {
		line += ", " + Age(float64(left)/rate) + " left"
	}
	return line
}

// filesLine has the number of finished files. The total may be unknown.
func filesLine(what string, f Figures) string {
	if f.FilesTotal == 0 {
		return what + ": " + bb.Count(f.Files, "file")
	}
	return fmt.Sprintf("%s: %d of %d files", what, f.Files, f.FilesTotal)
}

// Update shows the daemon's progress.
func (p *Progress) Update(now admin.Progress) {
	p.Set(Figures{Files: now.FilesDone, FilesTotal: now.FilesTotal, Bytes: now.BytesDone, BytesTotal: now.BytesTotal})
}

func (p *Progress) End() {
	if p.Bar != nil {
		p.Bar.Finish()
	}
}
