package gatewayconfig

import (
	"cmp"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A Card describes a gateway to everybody in a server card. Each member is optional.
type Card struct {
	// Name identifies the gateway, as in "com.example/tools". Default: the reversed host of
	// PublicURL, and /patchbay.
	Name string `json:"name,omitzero" jsonschema:"reversed domain a slash and a name,maxLength=200"`
	// Title is a name for people. Default: Patchbay gateway.
	Title string `json:"title,omitzero" jsonschema:"name for people,maxLength=100"`
	// Description says what the gateway offers. Default: a sentence that names no server.
	Description string `json:"description,omitzero" jsonschema:"what the gateway offers,maxLength=100"`
	// WebsiteURL is a page about the gateway.
	WebsiteURL string `json:"websiteUrl,omitzero" jsonschema:"page about the gateway,pattern=^https?://"`
}

// Served returns the card of a gateway of a version.
func (c *Card) Served(version string) *servercard.Card {
	return &servercard.Card{Name: c.Name, Version: version, Title: c.Title, Description: c.Description,
		WebsiteURL: c.WebsiteURL}
}

func (c *Card) check(p *config.Problems, publicURL string) {
	if c == nil {
		return
	}
	if publicURL == "" {
		p.Add("/card", "want publicURL, because a card says where the gateway is")
	}
	served := c.Served("1")
	served.Name, served.Description = cmp.Or(c.Name, "a/b"), cmp.Or(c.Description, "x")
	if err := served.Validate(); err != nil {
		p.Add("/card", "%v", err)
	}
}
