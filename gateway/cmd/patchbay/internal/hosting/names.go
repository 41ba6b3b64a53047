package hosting

import (
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Replace replaces the data that new connections read from the configuration. restore undoes it.
func (c *Config) Replace(next *Config) (restore func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	targets, entries, inputs := c.Targets, c.Entries, c.Inputs
	c.Targets, c.Entries, c.Inputs = next.Targets, next.Entries, next.Inputs
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.Targets, c.Entries, c.Inputs = targets, entries, inputs
	}
}

// Known returns the entry and the target of a server of the files, or nil.
func (c *Config) Known(name string) (*config.Server, *target.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Entries[name], c.Targets[name]
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
