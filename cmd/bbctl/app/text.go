package app

import (
	"fmt"
	"strings"
	"time"

	"forebay/internal/bb"

	"github.com/dustin/go-humanize"
)

func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// BelowOf returns the path of an entry below a directory, "" of the directory itself.
func BelowOf(p, dir string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
}

// Below reports whether a path lies in a directory.
func Below(p, dir string) bool { return dir == "" || strings.HasPrefix(p, dir+"/") }

func OneLineOf(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// OneLine is a text of a daemon in one line.
func OneLine(text string) string { return bb.Printable(strings.ReplaceAll(text, "\n", "; ")) }

func Size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// Age prints seconds as a person would.
func Age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
