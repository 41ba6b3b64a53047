// Package spell finds the name that was probably meant by a misspelt name.
package spell

import "strings"

// Nearest returns the candidate that is most similar to a misspelt name, or "".
func Nearest(name string, candidates []string) string {
	const longest, most = 64, 1000 // more would take too much time
	if len(name) < 2 || len(name) > longest {
		return ""
	}
	plain := nameMarks.Replace(strings.ToLower(name))
	best, bestDistance := "", max(1, len(name)/3)+1
	for _, c := range candidates[:min(len(candidates), most)] {
		if len(c) > longest {
			continue
		}
		if d := distance(plain, nameMarks.Replace(strings.ToLower(c))); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

var nameMarks = strings.NewReplacer("_", "", "-", "", " ", "")

// distance returns the number of bytes to insert, delete, replace or swap between two names.
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			d := min(last[j+1]+1, row[j]+1)
			if a[i] == b[j] {
				d = min(d, last[j])
			} else {
				d = min(d, last[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = d
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
