package routes

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Discover returns the description of all servers together. A client learns only once what a server offers,
// so the description declares everything that any of the servers may offer later.
func (t *Table) Discover(ctx context.Context) (*mcp.DiscoverResult, error) {
	wait, cancel := context.WithTimeout(ctx, listing.DiscoverWait)
	defer cancel()
	t.Connect(wait)
	m, err := t.within(ctx, wait, 0)
	if err != nil {
		return nil, err
	}
	res := &mcp.DiscoverResult{SupportedVersions: newestRevisions(), Instructions: m.Catalogue.Instructions()}
	if err := json.Unmarshal(m.Catalogue.Capabilities(), &res.Capabilities); err != nil {
		return nil, err
	}
	caps := &res.Capabilities
	caps.Tools, caps.Prompts = &mcp.ListCapability{ListChanged: true}, &mcp.ListCapability{ListChanged: true}
	caps.Resources = &mcp.ResourceCapability{Subscribe: true, ListChanged: true}
	DeclareEvents(t.o.Caller, caps)
	caps.Completions, caps.Logging = &struct{}{}, &struct{}{}
	return res, nil
}

// newestRevisions returns all revisions, the newest first.
func newestRevisions() (all []string) {
	for _, r := range wire.Revisions() {
		all = append([]string{r.String()}, all...)
	}
	return all
}

// DeclareEvents declares the events of servers as the host offers them to a caller.
func DeclareEvents(c *policy.Caller, caps *mcp.ServerCapabilities) {
	if _, ok := caps.Extensions[listing.ExtensionEvents]; !ok {
		return
	}
	caps.Extensions = maps.Clone(caps.Extensions)
	if caps.Extensions[listing.ExtensionEvents] = map[string]any{"listChanged": true}; !c.May(policy.ActionEvent) {
		delete(caps.Extensions, listing.ExtensionEvents)
	}
}
