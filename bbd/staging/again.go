package staging

import (
	"context"
	"errors"
	"time"

	"forebay/flusher/stage"
	"forebay/internal/bb"
)

// A node may be ready, and chosen, before others have received that. One that is started anew is away for a moment. So
// files that fail for a node that is away are retried, after pauses that double. Each retry looks up anew the node
// where a file belongs.
const (
	awayTries = 4
	awayPause = 250 * time.Millisecond
)

// inAgain stages files in by run, and those again that fail for a node that is away. Run gets how far the earlier tries
// have come.
func inAgain(ctx context.Context, found []stage.Found, codecName string, run func([]stage.Found, stage.Progress) stage.Report) stage.Report {
	report := run(found, stage.Progress{})
	for try := range awayTries {
		again := takeAway(&report, found, codecName)
		if len(again) == 0 {
			break
		}
		select {
		case <-time.After(awayPause << try):
		case <-ctx.Done():
		}
		more := run(again, report.Progress)
		report.Progress = plus(report.Progress, more.Progress)
		report.Failures = append(report.Failures, more.Failures...)
	}
	return report
}

// takeAway takes those files out of a report that failed for a node that is away, and returns them.
func takeAway(report *stage.Report, found []stage.Found, codecName string) (again []stage.Found) {
	targets := make(map[string]stage.Found, len(found))
	for _, f := range found {
		target, _ := stage.Plain(f.Target, codecName)
		targets[target] = f
	}
	left := report.Failures[:0:0]
	for _, failure := range report.Failures {
		f, known := targets[failure.Name]
		if !known || !isAway(failure.Err) {
			left = append(left, failure)
			continue
		}
		again = append(again, f)
		report.Progress = plus(report.Progress, stage.Progress{
			Files: -1, FilesDone: -1, Failed: -1, Bytes: -f.Object.Size, BytesDone: -f.Object.Size, BytesNotCopied: -f.Object.Size,
		})
	}
	report.Failures = left
	return again
}

// isAway reports whether an error is of a node that is away. Stores are tried again where they are reached.
func isAway(err error) bool {
	var e *bb.Error
	for ; errors.As(err, &e); err = e.Err {
		if e.Kind == bb.Unavailable && e.Node != "" {
			return true
		}
	}
	return false
}

// plus adds counts.
func plus(p, q stage.Progress) stage.Progress {
	p.Files, p.FilesDone, p.Skipped, p.Failed = p.Files+q.Files, p.FilesDone+q.FilesDone, p.Skipped+q.Skipped, p.Failed+q.Failed
	p.Bytes, p.BytesDone, p.BytesNotCopied = p.Bytes+q.Bytes, p.BytesDone+q.BytesDone, p.BytesNotCopied+q.BytesNotCopied
	return p
}
