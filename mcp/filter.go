package mcp

import (
	"context"
	stdjson "encoding/json"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/uritemplate"
)

// Bounds of what one subscription asks for.
const (
	// maxSubscribedURIs bounds the resources of one subscription: each is kept for as long as it is open.
	maxSubscribedURIs = 1000
	// maxListen bounds the params of a subscription, in bytes: they are kept for as long as it is open, and there may be
	// thousands.
	maxListen = 320 << 10
	// maxURI bounds a resource URI.
	maxURI = uritemplate.MaxLength
)

// A Filter says which changes a subscription wants to hear of.
//
// Spec: basic/patterns/subscriptions (2026-07-28).
type Filter struct {
	ToolsListChanged      bool     `json:"toolsListChanged,omitzero"`
	PromptsListChanged    bool     `json:"promptsListChanged,omitzero"`
	ResourcesListChanged  bool     `json:"resourcesListChanged,omitzero"`
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"` // URIs
	// Topics are further members of the JSON object, which extensions define: see [Server.AddTopic].
	Topics map[string]stdjson.RawMessage `json:",embed"`
}

// plainFilter is a Filter without methods.
type plainFilter Filter

// MarshalJSON returns one object, Topics among the others.
func (f Filter) MarshalJSON() ([]byte, error) { return json.Marshal(plainFilter(f), deterministic) }

// UnmarshalJSON reads one object; Topics are all members that the core protocol does not have.
func (f *Filter) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*plainFilter)(f)) }

// coreFilter reports whether a member of a filter is the core protocol's.
func coreFilter(member string) bool {
	switch member {
	case "toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "_meta":
		return true
	}
	return false
}

func (f Filter) lists() (c listChange) {
	if f.ToolsListChanged {
		c |= toolsChanged
	}
	if f.PromptsListChanged {
		c |= promptsChanged
	}
	if f.ResourcesListChanged {
		c |= resourcesChanged
	}
	return c
}

// openFilter reads what the client wants to hear of, and leaves what the server can tell it: that is the
// acknowledgement.
func (s *Server) openFilter(ctx context.Context, req *Request) (f Filter, err error) {
	if len(req.Params) > maxListen {
		return f, Errorf(CodeInvalidParams, "params: %d bytes, at most %d are taken", len(req.Params), maxListen)
	}
	raw, ok := jsonscan.Get(req.Params, "notifications")
	if !ok || jsonscan.Kind(raw) != '{' {
		return f, Errorf(CodeInvalidParams, "params.notifications: want an object that names what to listen to")
	}
	if err := json.Unmarshal(raw, &f); err != nil || holdsNull(raw) {
		return f, Errorf(CodeInvalidParams, "params.notifications: want booleans, and an array of strings for resourceSubscriptions")
	}
	if len(f.ResourceSubscriptions) > maxSubscribedURIs {
		return f, Errorf(CodeInvalidParams, "params.notifications.resourceSubscriptions: %d URIs, at most %d are taken",
			len(f.ResourceSubscriptions), maxSubscribedURIs)
	}
	f.ToolsListChanged = f.ToolsListChanged && s.tools.ever.Load()
	f.PromptsListChanged = f.PromptsListChanged && s.prompts.ever.Load()
	f.ResourcesListChanged = f.ResourcesListChanged && s.offersResources()
	f.ResourceSubscriptions = slices.DeleteFunc(f.ResourceSubscriptions, func(uri string) bool {
		return len(uri) > maxURI || !s.offersResources() || !s.readable(ctx, uri)
	})
	return f, nil
}

// holdsNull reports whether a filter has null for a member or a URI. Decoding takes it for the zero value; the protocol
// knows no such thing.
func holdsNull(filter stdjson.RawMessage) bool {
	for key, value := range jsonscan.Members(filter) {
		switch string(key) {
		case "toolsListChanged", "promptsListChanged", "resourcesListChanged":
			if jsonscan.Kind(value) == 'n' {
				return true
			}
		case "resourceSubscriptions":
			if jsonscan.Kind(value) == 'n' {
				return true
			}
			for uri := range jsonscan.Elements(value) {
				if jsonscan.Kind(uri) == 'n' {
					return true
				}
			}
		}
	}
	return false
}
