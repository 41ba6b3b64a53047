package catalogue

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// AutoSearchTokens is the number of estimated tokens above which search mode is used, if the mode is
// chosen automatically: a tenth of the context of common models.
const AutoSearchTokens = 15_000

// bytesPerToken is the mean for JSON in the tokenizers of common models.
const bytesPerToken = 4

// Tokens estimates the number of tokens of all visible tool definitions.
func (c *Catalogue) Tokens() (n int) {
	for _, item := range c.kinds[Tools].items {
		n += item.Size()
	}
	return n / bytesPerToken
}

// Limits of a search.
const (
	// maxQueryTerms limits the work for a query, which should be a phrase.
	maxQueryTerms = 64
	// maxIndexedText limits the indexed bytes of each field, and of all argument names. The
	// beginning of a description should say what a tool does.
	maxIndexedText = 2 << 10
)

// Search returns the visible tools that match the words of a query, the best first, at most limit;
// 0 means all. The order is that of BM25 over name, title, description and argument names. Equal
// tools are in the order of the list.
func (c *Catalogue) Search(query string, limit int) []*Item { return c.search().find(query, limit) }

// Parameters of BM25, with the values of common search engines: how soon repeated words stop
// counting, and how much the length of a text counts.
const (
	bm25Saturation = 1.2
	bm25Length     = 0.75
)

// Weights of fields: a word in a name says more than a word in a description.
const (
	weightName        = 4
	weightTitle       = 3
	weightDescription = 1
	weightArgument    = 1
)

func newIndex(items []*Item) *index {
	x := &index{items: items, lengths: make([]float64, len(items)), postings: map[string][]posting{}}
	total := 0.0
	for i, item := range items {
		x.add(i, item.Public, weightName)
		if item.Public != item.Original && !strings.HasSuffix(item.Public, separator+item.Original) {
			x.add(i, item.Original, weightName)
		}
		x.add(i, item.text("title"), weightTitle)
		x.add(i, item.Description(), weightDescription)
		schema, _ := jsonscan.Get(item.body, "inputSchema")
		properties, _ := jsonscan.Get(schema, "properties")
		size := 0
		for name := range jsonscan.Members(properties) {
			if size += len(name); size > maxIndexedText {
				break
			}
			x.add(i, string(name), weightArgument)
		}
		total += x.lengths[i]
	}
	x.mean = total / float64(max(len(items), 1))
	return x
}

// add indexes a field of an item.
func (x *index) add(item int, text string, weight float32) {
	for _, word := range wordsOf(cut(text, maxIndexedText)) {
		list := x.postings[word]
		if n := len(list); n > 0 && list[n-1].item == int32(item) {
			list[n-1].weight += weight
		} else {
			x.postings[word] = append(list, posting{int32(item), weight})
		}
		x.lengths[item] += float64(weight)
	}
}

func (x *index) find(query string, limit int) []*Item {
	scores := make([]float64, len(x.items))
	terms := wordsOf(cut(query, maxIndexedText))
	slices.Sort(terms)
	terms = slices.Compact(terms)
	for _, term := range terms[:min(len(terms), maxQueryTerms)] {
		list := x.postings[term]
		n, all := float64(len(list)), float64(len(x.items))
		rarity := math.Log(1 + (all-n+0.5)/(n+0.5))
		for _, p := range list {
			length := 1 - bm25Length + bm25Length*x.lengths[p.item]/x.mean
			weight := float64(p.weight)
			scores[p.item] += rarity * weight * (bm25Saturation + 1) / (weight + bm25Saturation*length)
		}
	}
	var found []int
	for i, item := range x.items {
		if item.Public == query || item.Original == query {
			scores[i] = math.Inf(1)
		}
		if scores[i] > 0 {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	if limit > 0 {
		found = found[:min(len(found), limit)]
	}
	items := make([]*Item, len(found))
	for i, f := range found {
		items[i] = x.items[f]
	}
	return items
}

// wordsOf returns the words of a text in lower case, without plural endings. Names such as
// createIssue and HTTPServer_2 are several words.
func wordsOf(text string) (words []string) {
	runes := []rune(text)
	start := -1
	end := func(i int) {
		if start >= 0 {
			words = append(words, stem(strings.ToLower(string(runes[start:i]))))
		}
		start = -1
	}
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			end(i)
			continue
		}
		if start >= 0 && unicode.IsUpper(r) {
			before, next := runes[i-1], i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if unicode.IsLower(before) || unicode.IsUpper(before) && next {
				end(i)
			}
		}
		if start < 0 {
			start = i
		}
	}
	end(len(runes))
	return words
}

// stem removes the plural endings of English.
func stem(word string) string {
	ends := func(endings ...string) bool {
		return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(word, e) })
	}
	switch {
	case len(word) > 4 && ends("ies"):
		return word[:len(word)-3] + "y"
	case len(word) > 4 && ends("ches", "shes", "xes", "sses"):
		return word[:len(word)-2]
	case len(word) > 3 && ends("s") && !ends("ss", "us"):
		return word[:len(word)-1]
	}
	return word
}
