package explore

import (
	"context"
	stdjson "encoding/json"
	"net/http"
	"net/url"

	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// addBlocked adds the items that the host hides because their definitions wait for approval. A
// gateway that records no definitions hides no items.
func (c *catalogues) addBlocked(ctx context.Context, loaded *catalogue, server string, p *mcp.Principal) {
	q := url.Values{"server": {server}, "status": {"quarantined"}, "definitions": {"true"}, "limit": {"1000"}}
	var list struct {
		Pins []struct {
			Kind    pin.Kind `json:"kind"`
			Name    string   `json:"name"`
			Status  string   `json:"status"`
			Pending []struct {
				Definition stdjson.RawMessage `json:"definition"`
			} `json:"pending"`
		} `json:"pins"`
	}
	if err := c.site.Call(ctx, p, http.MethodGet, "/pins?"+q.Encode(), nil, &list); err != nil {
		c.site.Logger.Debug("console: quarantined definitions are not listed", "server", server, "error", err)
		return
	}
	for _, d := range list.Pins {
		var definition stdjson.RawMessage
		if len(d.Pending) > 0 {
			definition = d.Pending[0].Definition
		}
		i := pinnedItem(d.Kind, d.Name, definition)
		if i == nil || loaded.find(i.Kind, i.Name) != nil {
			continue
		}
		i.Blocked = "The definition is new, and waits for approval."
		if d.Status == "changed" {
			i.Blocked = "The definition differs from the approved definition, and waits for approval."
		}
		i.Marks = append([]mark{{"quarantined", "warn"}}, i.Marks...)
		loaded.Items[i.Kind] = append(loaded.Items[i.Kind], i)
	}
}

// pinnedItem returns the item of a recorded definition, which may be nil or invalid. It returns nil
// if the definition is not the definition of an item.
func pinnedItem(kind pin.Kind, name string, definition []byte) *item {
	switch kind {
	case pin.Tool:
		return decoded(definition, toolItem, &item{Kind: kindTools, Name: name})
	case pin.Prompt:
		return decoded(definition, promptItem, &item{Kind: kindPrompts, Name: name})
	case pin.Resource:
		return decoded(definition, resourceItem, &item{Kind: kindResources, Name: name})
	case pin.Template:
		return decoded(definition, templateItem, &item{Kind: kindTemplates, Name: name})
	case pin.Server:
	}
	return nil
}

// decoded returns the item of a definition, or other if the definition is invalid.
func decoded[T any](definition []byte, convert func(*T) *item, other *item) *item {
	one := new(T)
	if stdjson.Unmarshal(definition, one) != nil {
		return other
	}
	if i := convert(one); i.Name != "" {
		return i
	}
	return other
}
