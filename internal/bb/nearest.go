package bb

import (
	"cmp"
	"slices"
	"strings"
)

const maxNearest = 256 // a longer word is no slip

// Nearest returns the names that a word may have been meant to be, the most alike first, at
// most three. They are those that it begins, and those that differ by few letters.
func Nearest(word string, names []string) []string {
	type near struct {
		name string
		away int
	}
	if len(word) > maxNearest {
		return nil
	}
	var all []near
	for _, name := range names {
		away := distance(strings.ToLower(word), strings.ToLower(name))
		if away <= min(2, (max(len(word), len(name))+1)/3) || len(word) > 1 && strings.HasPrefix(name, word) {
			all = append(all, near{name, away})
		}
	}
	slices.SortFunc(all, func(a, b near) int { return cmp.Or(a.away-b.away, strings.Compare(a.name, b.name)) })
	var found []string
	for _, n := range all[:min(len(all), 3)] {
		found = append(found, n.name)
	}
	return found
}

// DidYouMean is a remedy that names the likely meanings of a word, else another remedy.
func DidYouMean(word string, names []string, otherwise string) string {
	near := Nearest(word, names)
	if len(near) == 0 {
		return otherwise
	}
	return "did you mean " + strings.Join(near, " or ") + "? " + otherwise
}

// distance is how many letters have to be put in, taken out, replaced or exchanged with the
// next to make one word of another (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
