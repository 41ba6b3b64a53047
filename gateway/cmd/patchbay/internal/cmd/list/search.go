package list

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// matches reports whether a text contains each word. Case does not matter.
func matches(texts, words []string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range strings.Fields(strings.ToLower(strings.Join(words, " "))) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

// toolText returns the texts of a tool that --search searches.
func toolText(t *mcp.Tool) []string {
	title := ""
	if t.Annotations != nil {
		title = t.Annotations.Title
	}
	return []string{t.Name, t.Title, title, t.Description}
}

// resourceText returns the texts of a resource that --search searches.
func resourceText(r *mcp.Resource) []string { return []string{r.URI, r.Name, r.Title, r.Description} }

// templateText returns the texts of a resource template that --search searches.
func templateText(t *mcp.ResourceTemplate) []string {
	return []string{t.URITemplate, t.Name, t.Title, t.Description}
}

// promptTexts returns the texts of a prompt that --search searches.
func promptTexts(prompt *mcp.Prompt) []string {
	return []string{prompt.Name, prompt.Title, prompt.Description}
}
