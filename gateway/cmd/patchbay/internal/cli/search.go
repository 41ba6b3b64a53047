package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// searchable adds --search to a command that prints a list.
func searchable(f *factory, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArrayVar(&f.search, "search", nil,
		"list only those whose name, title or description contains each of these `words`")
	return cmd
}

// matches reports whether each word is in one of the texts. Case does not matter.
func matches(texts, words []string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range strings.Fields(strings.ToLower(strings.Join(words, " "))) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

func toolText(t *mcp.Tool) []string {
	title := ""
	if t.Annotations != nil {
		title = t.Annotations.Title
	}
	return []string{t.Name, t.Title, title, t.Description}
}

func resourceText(r *mcp.Resource) []string { return []string{r.URI, r.Name, r.Title, r.Description} }

func templateText(t *mcp.ResourceTemplate) []string {
	return []string{t.URITemplate, t.Name, t.Title, t.Description}
}

func promptTexts(prompt *mcp.Prompt) []string {
	return []string{prompt.Name, prompt.Title, prompt.Description}
}
