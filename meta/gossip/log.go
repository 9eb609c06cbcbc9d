package gossip

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"golang.org/x/time/rate"
)

// memberlist's message of its own suspicion. It reports it nowhere else. If a new release changes
// it, TestSuspect fails.
const (
	suspectBefore = "Suspect "
	suspectAfter  = " has failed, no acks received"
)

// logWriter passes memberlist's log on, line by line, one level lower than memberlist's, since
// trouble of the network is its daily work. A flood (any host can send packets that do not decrypt)
// is cut and counted.
type logWriter struct {
	to      *slog.Logger
	limit   *rate.Limiter
	stats   *counters
	suspect func(node string)
}

func newLogger(w *logWriter) *log.Logger { return log.New(w, "", 0) }

// Write takes one line.
func (w *logWriter) Write(line []byte) (int, error) {
	level, text := parseLine(string(line))
	if name, ok := strings.CutPrefix(text, suspectBefore); ok {
		if name, ok = strings.CutSuffix(name, suspectAfter); ok {
			w.suspect(name)
		}
	}
	ctx := context.Background() // a log line has no waiter
	switch {
	case !w.to.Enabled(ctx, level):
	case level > slog.LevelDebug && !w.limit.Allow():
		w.stats.suppressed.Add(1)
	default:
		w.to.Log(ctx, level, "gossip: "+text)
	}
	return len(line), nil
}

// parseLine takes "[WARN] memberlist: text" apart.
func parseLine(line string) (slog.Level, string) {
	line = strings.TrimSpace(line)
	level := slog.LevelInfo
	if tag, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(tag, "[") {
		line = rest
		switch tag[1:] {
		case "ERR", "ERROR":
			level = slog.LevelWarn
		case "DEBUG", "INFO":
			level = slog.LevelDebug
		}
	}
	return level, strings.TrimPrefix(line, "memberlist: ")
}
