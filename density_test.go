package patchbay_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A density is a goal for the frequency of words in the comments of each package, per 1,000 words. Six
// Go projects were measured the same way: quic-go, connect, go-sdk, caddy, the GitHub command and
// coder/websocket.
type density struct {
	words   []string
	theSix  string
	limit   float64
	isFloor bool // the comments must contain at least, not at most, so many
}

// densities find comments in which pronouns and weak verbs stand where a noun or a precise verb would
// be clearer. The figures are a symptom: a comment is good if a stranger understands it alone.
var densities = []density{
	{[]string{"one", "ones"}, "1.1-2.6", 4, false},
	{[]string{"those"}, "0-0.6", 1, false},
	{[]string{"has", "have"}, "2.6-5.0", 7, false},
	{[]string{"what"}, "0-0.5", 1.5, false},
	{[]string{"nothing", "none"}, "0-0.8", 1.5, false},
	{[]string{"contains", "contain", "holds", "hold", "specifies", "specify", "represents", "represent"}, "1.5-6.9", 1.5, true},
	{[]string{"must", "should"}, "2.4-5.6", 2, true},
}

// commentWords counts the words in the comments of a package.
type commentWords struct {
	total int
	count map[string]int
}

var (
	wordPattern = regexp.MustCompile(`[A-Za-z]+(['-][A-Za-z]+)*`)
	directive   = regexp.MustCompile(`^//(go:|nolint|line |export )`)
)

func (c *commentWords) add(group *ast.CommentGroup) {
	for _, comment := range group.List {
		if directive.MatchString(comment.Text) {
			continue
		}
		for _, w := range wordPattern.FindAllString(comment.Text, -1) {
			c.total++
			c.count[strings.ToLower(w)]++
		}
	}
}

// of returns how many of the words occur.
func (c *commentWords) of(words []string) int {
	total := 0
	for _, w := range words {
		total += c.count[w]
	}
	return total
}

// meets reports whether a package of that many words meets a goal. The goal is rounded in favor of the
// package, so a package of 200 words may contain a word once, and need not contain any.
func (d density) meets(count, words int) bool {
	goal := d.limit * float64(words) / 1000
	if d.isFloor {
		return count >= int(math.Floor(goal))
	}
	return count <= int(math.Ceil(goal))
}

func (d density) String() string {
	sign := "≤"
	if d.isFloor {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s %v", d.words[0], sign, d.limit)
}

// TestCommentDensity prints the densities of every package with -v.
func TestCommentDensity(t *testing.T) {
	packages := map[string]*commentWords{}
	sources(t, func(name string, file *ast.File, _ *token.FileSet, _ []byte) {
		dir := path.Dir(name)
		if strings.HasPrefix(dir, "examples") {
			return
		}
		if packages[dir] == nil {
			packages[dir] = &commentWords{count: map[string]int{}}
		}
		for _, group := range file.Comments {
			packages[dir].add(group)
		}
	})
	var table strings.Builder
	fmt.Fprintf(&table, "%-52s%8s", "per 1,000 words of comments", "words")
	for _, d := range densities {
		fmt.Fprintf(&table, "%16s", d)
	}
	fmt.Fprintf(&table, "\n%-60s", "the six models")
	for _, d := range densities {
		fmt.Fprintf(&table, "%16s", d.theSix)
	}
	bySize := slices.SortedFunc(maps.Keys(packages), func(a, b string) int {
		return cmp.Or(cmp.Compare(packages[b].total, packages[a].total), strings.Compare(a, b))
	})
	for _, dir := range bySize {
		table.WriteString(packageDensities(t, dir, packages[dir]))
	}
	t.Log("\n" + table.String())
}

// packageDensities returns the row of a package. Figures that miss a goal are marked.
func packageDensities(t *testing.T, dir string, c *commentWords) string {
	t.Helper()
	row := fmt.Sprintf("\n%-52s%8d", dir, c.total)
	for _, d := range densities {
		count := c.of(d.words)
		figure := fmt.Sprintf("%.1f", 1000*float64(count)/float64(max(1, c.total)))
		if !d.meets(count, c.total) {
			figure += "!"
			t.Errorf("the comments of %s contain %s %d times in %d words, want %s per 1,000: name the thing, "+
				"or use the verb that says what happens", dir, strings.Join(d.words, ", "), count, c.total, d)
		}
		row += fmt.Sprintf("%16s", figure)
	}
	return row
}
