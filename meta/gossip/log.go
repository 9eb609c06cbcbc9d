package gossip

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"golang.org/x/time/rate"
)

// memberlist's words for its own suspicion. It tells of it nowhere else; should a
// new release change them, TestSuspect fails.
const (
	suspectBefore = "Suspect "
	suspectAfter  = " has failed, no acks received"
)

// logWriter passes memberlist's log on, line by line. One level less than memberlist
// thinks: what the network does to it is its daily work. A flood (anybody can send
// packets that do not decrypt) is cut and counted.
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
	ctx := context.Background() // nobody waits for a log line
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
