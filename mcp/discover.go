package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A DiscoverResult describes a server: its revisions, capabilities and instructions.
//
// Spec: server/discover (2026-07-28).
type DiscoverResult struct {
	// SupportedVersions contains the revisions of the server, the newest first. Revisions before
	// 2026-07-28 require an initialize request.
	SupportedVersions []string           `json:"supportedVersions"`
	Capabilities      ServerCapabilities `json:"capabilities"`
	Instructions      string             `json:"instructions,omitzero"`
	Cache
	Meta `json:"-"`
	complete
}

func (s *Server) discover(context.Context) (Result, error) {
	revisions := s.accepts
	if revisions == nil {
		revisions = wire.Revisions()
	}
	return &DiscoverResult{
		SupportedVersions: newestFirst(revisions),
		Capabilities:      s.capabilities(),
		Instructions:      s.opts.Instructions,
		Cache:             s.opts.Cache,
	}, nil
}

// newestFirst returns the names of revisions in the order of server/discover.
func newestFirst(revisions []wire.Revision) (versions []string) {
	for _, r := range slices.Backward(revisions) {
		versions = append(versions, r.String())
	}
	return versions
}

// ClientCapabilities are the capabilities that a client declares with every request. A nil pointer
// means not supported.
//
// Spec: basic (2026-07-28), Capabilities; schema ClientCapabilities.
type ClientCapabilities struct {
	// Elicitation: the client can ask its user. Without a mode it supports forms.
	Elicitation *ElicitationCapability `json:"elicitation,omitzero"`
	// Sampling: the client can call its language model.
	Sampling *SamplingCapability `json:"sampling,omitzero"`
	// Roots: the client can list the folders that it works in.
	Roots *struct{} `json:"roots,omitzero"`
	// Experimental holds capabilities outside the specification.
	Experimental map[string]any `json:"experimental,omitzero"`
	// Extensions maps the id of each supported extension to its settings.
	Extensions map[string]json.RawMessage `json:"extensions,omitzero"`
}

// An ElicitationCapability contains the modes of elicitation that a client supports.
type ElicitationCapability struct {
	Form *struct{} `json:"form,omitzero"`
	URL  *struct{} `json:"url,omitzero"`
}

// A SamplingCapability contains the features of sampling that a client supports.
type SamplingCapability struct {
	Tools   *struct{} `json:"tools,omitzero"`
	Context *struct{} `json:"context,omitzero"`
}

// parseClientCapabilities decodes a declaration. A member that cannot be decoded is not supported;
// the others are, since capabilities are an open set.
func parseClientCapabilities(raw json.RawMessage) (c ClientCapabilities) {
	if jsonv2.Unmarshal(raw, &c) == nil {
		return c
	}
	c = ClientCapabilities{}
	for name, value := range jsonscan.Members(raw) {
		with := c
		if jsonv2.Unmarshal(jsonscan.WithMember([]byte("{}"), string(name), value), &with) == nil {
			c = with
		}
	}
	return c
}

func (c ClientCapabilities) asksForm() bool {
	return c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

func (c ClientCapabilities) asksURL() bool { return c.Elicitation != nil && c.Elicitation.URL != nil }

// ServerCapabilities are the capabilities of a server. A nil pointer means not supported.
//
// Spec: schema ServerCapabilities (2026-07-28).
type ServerCapabilities struct {
	Tools        *ListCapability     `json:"tools,omitzero"`
	Prompts      *ListCapability     `json:"prompts,omitzero"`
	Resources    *ResourceCapability `json:"resources,omitzero"`
	Completions  *struct{}           `json:"completions,omitzero"`
	Logging      *struct{}           `json:"logging,omitzero"`
	Experimental map[string]any      `json:"experimental,omitzero"`
	Extensions   map[string]any      `json:"extensions,omitzero"`
	// Tasks is the JSON object of the capability that revision 2025-11-25 alone defines; see
	// package ext/tasks.
	Tasks json.RawMessage `json:"tasks,omitzero"`
	// Other holds further members, which extensions define. Package encoding/json alone does not make
	// them members of the JSON object.
	Other map[string]json.RawMessage `json:",embed"`
}

// A ListCapability is the capability of a list of tools or prompts.
type ListCapability struct {
	ListChanged bool `json:"listChanged,omitzero"` // changes of the list are notified
}

// A ResourceCapability is the capability of resources.
type ResourceCapability struct {
	Subscribe   bool `json:"subscribe,omitzero"`   // changes of a resource are notified
	ListChanged bool `json:"listChanged,omitzero"` // changes of the list are notified
}

func (s *Server) capabilities() ServerCapabilities {
	s.mu.Lock()
	extensions := s.extensions
	s.mu.Unlock()
	caps := ServerCapabilities{Experimental: s.opts.Experimental, Extensions: extensions}
	if !s.opts.NoLogging {
		caps.Logging = &struct{}{}
	}
	listChanged := !s.opts.NoListChanged
	if s.tools.ever.Load() {
		caps.Tools = &ListCapability{ListChanged: listChanged}
	}
	if s.prompts.ever.Load() {
		caps.Prompts = &ListCapability{ListChanged: listChanged}
	}
	if s.offersResources() {
		caps.Resources = &ResourceCapability{Subscribe: !s.opts.NoSubscribe, ListChanged: listChanged}
	}
	if s.completes.Load() {
		caps.Completions = &struct{}{}
	}
	return caps
}

func (s *Server) offersResources() bool { return s.resources.ever.Load() || s.templates.ever.Load() }

// An Implementation is the name and version of a client or a server, for people and logs. It is a
// claim and not verified.
//
// Spec: basic (2026-07-28), Request Metadata; schema Implementation.
type Implementation struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	Title       string `json:"title,omitzero"`
	Description string `json:"description,omitzero"`
	WebsiteURL  string `json:"websiteUrl,omitzero"`
	Icons       []Icon `json:"icons,omitempty"`
}

// An Icon is an image to show beside a name. Clients fetch https and data URIs only.
//
// Spec: basic (2025-11-25, 2026-07-28), Icons.
type Icon struct {
	Src      string   `json:"src"`               // an https or data URI
	MIMEType string   `json:"mimeType,omitzero"` // such as "image/png"
	Sizes    []string `json:"sizes,omitempty"`   // such as "48x48", or "any"
	Theme    string   `json:"theme,omitzero"`    // "light", "dark", or empty for both
}

// A Cache contains the cache hints of a result: how long and by whom it may be reused. The zero
// value does not allow reuse. The hints become members of a result when it is sent; package json
// alone does not encode them. A server with [ServerOptions.Visible], whose results depend on the
// caller, sends all results but its description as private.
//
// Spec: server/utilities/caching (2026-07-28); schema CacheableResult.
type Cache struct {
	// TTL is how long the result may be cached. It is ttlMs on the wire, in whole milliseconds.
	TTL time.Duration `json:"-"`
	// Public allows every caller to reuse the result, whatever its permissions. Otherwise only the
	// same caller may reuse it. It is cacheScope on the wire, "public" or "private".
	Public bool `json:"-"`
}

type cacheableResult interface{ cacheHints() Cache }

func (c Cache) cacheHints() Cache { return c }

func (c *Cache) setCacheHints(hints Cache) { *c = hints }

func appendCache(dst []byte, c Cache) []byte {
	dst = strconv.AppendInt(append(dst, `"ttlMs":`...), c.TTL.Milliseconds(), 10)
	if c.Public {
		return append(dst, `,"cacheScope":"public"`...)
	}
	return append(dst, `,"cacheScope":"private"`...)
}

func (c Cache) validate() error {
	if c.TTL < 0 {
		return fmt.Errorf("invalid Cache.TTL %v: must not be negative", c.TTL)
	}
	return nil
}
