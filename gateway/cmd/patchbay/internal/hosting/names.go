package hosting

import (
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Replace replaces the data that new connections read from the configuration. restore undoes it.
func (c *Config) Replace(next *Config) (restore func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	targets, inputs := c.Targets, c.Inputs
	c.Targets, c.Inputs = next.Targets, next.Inputs
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.Targets, c.Inputs = targets, inputs
	}
}

// ShownNames returns names of servers for a message.
func ShownNames(names []string) string {
	const most = 20
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, term.Shorten(term.CleanLine(name), term.MaxNameShown))
	}
	text := strings.Join(shown, ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d others", len(names)-most)
	}
	return text
}
