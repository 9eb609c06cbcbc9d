package bb

import "fmt"

// Count is a number with its noun: Count(1, "file") is "1 file", Count(2, "file") "2 files". Many
// follows any other number than one, if the plural is not the noun and an s: "entries", or with a
// verb, as in Count(n, "flush waits", "flushes wait").
func Count[N ~int | ~int32 | ~int64 | ~uint32 | ~uint64](n N, one string, many ...string) string {
	switch {
	case n == 1:
		return fmt.Sprintf("%d %s", n, one)
	case len(many) > 0:
		return fmt.Sprintf("%d %s", n, many[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// FailedFiles returns the number of files that failed, and the reason of the first.
func FailedFiles[N ~int | ~int64](n N, path, reason string) string {
	if n == 1 {
		return fmt.Sprintf("1 file failed: %s: %s", path, reason)
	}
	return fmt.Sprintf("%s failed, the first is %s: %s", Count(n, "file"), path, reason)
}
