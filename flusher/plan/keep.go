package plan

import "forebay/internal/bb"

// Kept returns the first of a buffer's keep patterns that holds a file back, since its name is
// only passing, and whether one does. bb.CheckPattern says what patterns are.
func Kept(patterns []string, file string) (pattern string, kept bool) {
	for _, pattern := range patterns {
		if bb.MatchPattern(pattern, file) {
			return pattern, true
		}
	}
	return "", false
}
