package plan

import "forebay/internal/bb"

// Excluded returns the first of a buffer's keep patterns that holds a file back, since its name is
// temporary, and whether one does. bb.CheckPattern defines patterns. Files hidden by transactions
// are always held back.
func Excluded(patterns []string, file string) (pattern string, excluded bool) {
	if bb.Hidden(file) {
		return bb.HiddenDir + "/", true
	}
	for _, pattern := range patterns {
		if bb.MatchPattern(pattern, file) {
			return pattern, true
		}
	}
	return "", false
}
