package patchbay_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// guides are the pages that describe one task each.
var guides = []string{"gateway", "gateway-team", "gateway-access", "gateway-logins", "gateway-policy",
	"gateway-approvals", "gateway-audit", "gateway-operation"}

// longParagraphs are the pages whose paragraphs are being shortened.
var longParagraphs = []string{"architecture.md"}

var (
	fencedCode   = regexp.MustCompile("(?ms)^```.*?^```$")
	indentedCode = regexp.MustCompile(`(?m)^    .*$`)
	listItem     = regexp.MustCompile(`(?m)^\s*(?:[-*]|\d+\.) `)
	heading      = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
)

// prose returns a page without its code.
func prose(text []byte) string {
	return indentedCode.ReplaceAllString(fencedCode.ReplaceAllString(string(text), ""), "")
}

// TestGuidesAreShort limits the words of a guide. Details belong to a reference page.
func TestGuidesAreShort(t *testing.T) {
	const maxWords = 900
	texts := documents(t)
	for _, name := range guides {
		text, ok := texts["docs/"+name+".md"]
		if !ok {
			t.Errorf("docs/%s.md does not exist", name)
		}
		if n := len(strings.Fields(prose(text))); n > maxWords {
			t.Errorf("docs/%s.md has %d words, want at most %d: move details to a reference page", name, n, maxWords)
		}
	}
	if n := len(strings.Fields(string(texts["docs/rough-edges.md"]))); n > 1200 {
		t.Errorf("docs/rough-edges.md has %d words, want at most 1,200", n)
	}
	if n := strings.Count(string(texts["README.md"]), "\n"); n > 220 {
		t.Errorf("README.md has %d lines, want at most 220", n)
	}
}

// TestParagraphsAreShort limits paragraphs and items of lists to 80 words. Tables are exempt.
func TestParagraphsAreShort(t *testing.T) {
	const maxWords = 80
	for name, text := range documents(t) {
		if slices.Contains(longParagraphs, filepath.Base(name)) {
			continue
		}
		separated := listItem.ReplaceAllString(prose(text), "\n\n")
		for paragraph := range strings.SplitSeq(separated, "\n\n") {
			if n := len(strings.Fields(paragraph)); n > maxWords && !strings.HasPrefix(strings.TrimSpace(paragraph), "|") {
				t.Errorf("%s: a paragraph has %d words, want at most %d: %.60s…", name, n, maxWords, paragraph)
			}
		}
	}
}

// TestDocumentAnchorsExist checks links to headings of pages of the repository.
func TestDocumentAnchorsExist(t *testing.T) {
	texts := documents(t)
	anchors := map[string][]string{} // by file
	for name, text := range texts {
		for _, h := range heading.FindAllStringSubmatch(prose(text), -1) {
			anchors[name] = append(anchors[name], anchor(h[1]))
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s#:]*\.md)?#([^)\s]+)\)`)
	for name, text := range texts {
		for _, l := range link.FindAllStringSubmatch(prose(text), -1) {
			target := name
			if l[1] != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), l[1]))
			}
			if texts[target] != nil && !slices.Contains(anchors[target], l[2]) {
				t.Errorf("%s: %s has no heading #%s", name, target, l[2])
			}
		}
	}
}

// anchor returns the anchor that GitHub gives a heading.
func anchor(title string) string {
	title = strings.ToLower(strings.ReplaceAll(title, " ", "-"))
	return regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(title, "")
}
