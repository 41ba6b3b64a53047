package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A DiscoverResult says what a server is and offers.
//
// Spec: server/discover (2026-07-28).
type DiscoverResult struct {
	// SupportedVersions are the revisions that the server speaks, the newest first. The older ones are
	// reached through initialize.
	SupportedVersions []string           `json:"supportedVersions"`
	Capabilities      ServerCapabilities `json:"capabilities"`
	Instructions      string             `json:"instructions,omitzero"`
	Cache
	Meta `json:"-"`
	complete
}

func (s *Server) discover(context.Context) (Result, error) {
	revisions := wire.Revisions()
	versions := make([]string, 0, len(revisions))
	for i := len(revisions) - 1; i >= 0; i-- {
		versions = append(versions, revisions[i].String())
	}
	return &DiscoverResult{
		SupportedVersions: versions,
		Capabilities:      s.capabilities(),
		Instructions:      s.opts.Instructions,
		Cache:             s.opts.Cache.orPrivate(),
	}, nil
}

// ClientCapabilities is what a client can do, as it declares with every request. A nil pointer is "no".
//
// Spec: basic (2026-07-28), Capabilities; schema ClientCapabilities.
type ClientCapabilities struct {
	// Elicitation: the client asks its user on behalf of the server. With neither mode named it means forms.
	Elicitation *ElicitationCapability `json:"elicitation,omitzero"`
	// Sampling: the client runs its model on behalf of the server.
	Sampling *SamplingCapability `json:"sampling,omitzero"`
	// Roots: the client says which folders it works in.
	Roots *struct{} `json:"roots,omitzero"`
	// Experimental holds capabilities outside the specification.
	Experimental map[string]any `json:"experimental,omitzero"`
	// Extensions maps the id of each supported extension to its settings.
	Extensions map[string]json.RawMessage `json:"extensions,omitzero"`
}

// ElicitationCapability names the kinds of question that a client can put to its user.
type ElicitationCapability struct {
	Form *struct{} `json:"form,omitzero"`
	URL  *struct{} `json:"url,omitzero"`
}

// SamplingCapability names what a client's sampling can do beyond plain messages.
type SamplingCapability struct {
	Tools   *struct{} `json:"tools,omitzero"`
	Context *struct{} `json:"context,omitzero"`
}

// parseClientCapabilities reads a declaration. A part that is not understood is a part that is not declared: capability
// sets are open, and one odd member must not take the others away.
func parseClientCapabilities(raw json.RawMessage) (c ClientCapabilities) {
	if jsonv2.Unmarshal(raw, &c) == nil {
		return c
	}
	var parts map[string]json.RawMessage
	if jsonv2.Unmarshal(raw, &parts) != nil {
		return ClientCapabilities{}
	}
	c = ClientCapabilities{}
	takePart(parts, "elicitation", &c.Elicitation)
	takePart(parts, "sampling", &c.Sampling)
	takePart(parts, "roots", &c.Roots)
	takePart(parts, "experimental", &c.Experimental)
	takePart(parts, "extensions", &c.Extensions)
	return c
}

// takePart reads one part of a declaration; what cannot be read leaves into as it is.
func takePart[T any](parts map[string]json.RawMessage, name string, into *T) {
	var part T
	if jsonv2.Unmarshal(parts[name], &part) == nil {
		*into = part
	}
}

// asksForm reports whether questions may be asked as forms.
func (c ClientCapabilities) asksForm() bool {
	return c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// asksURL reports whether the user may be sent to a page.
func (c ClientCapabilities) asksURL() bool { return c.Elicitation != nil && c.Elicitation.URL != nil }

// ServerCapabilities is what a server offers.
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
	// Tasks is the JSON object of the capability that revision 2025-11-25 alone defines; see package ext/tasks.
	Tasks json.RawMessage `json:"tasks,omitzero"`
}

// ListCapability says whether changes of a list can be listened to.
type ListCapability struct {
	ListChanged bool `json:"listChanged,omitzero"`
}

// ResourceCapability says what about resources can be listened to.
type ResourceCapability struct {
	Subscribe   bool `json:"subscribe,omitzero"`   // changes of one resource
	ListChanged bool `json:"listChanged,omitzero"` // changes of the list
}

// capabilities derives what the server offers from what was registered.
func (s *Server) capabilities() ServerCapabilities {
	s.mu.Lock()
	extensions := s.extensions
	s.mu.Unlock()
	caps := ServerCapabilities{Logging: &struct{}{}, Experimental: s.opts.Experimental, Extensions: extensions}
	if s.tools.ever.Load() {
		caps.Tools = &ListCapability{ListChanged: true}
	}
	if s.prompts.ever.Load() {
		caps.Prompts = &ListCapability{ListChanged: true}
	}
	if s.offersResources() {
		caps.Resources = &ResourceCapability{Subscribe: true, ListChanged: true}
	}
	if s.completes.Load() {
		caps.Completions = &struct{}{}
	}
	return caps
}

func (s *Server) offersResources() bool { return s.resources.ever.Load() || s.templates.ever.Load() }

// An Implementation names a client or a server, for people and logs. It is a claim, not proof.
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

// An Icon is a picture to show beside a name. Consumers fetch https and data URIs only.
//
// Spec: basic (2025-11-25, 2026-07-28), Icons.
type Icon struct {
	Src      string   `json:"src"`               // where the picture is: an https or data URI
	MIMEType string   `json:"mimeType,omitzero"` // such as "image/png"
	Sizes    []string `json:"sizes,omitempty"`   // such as "48x48", or "any"
	Theme    string   `json:"theme,omitzero"`    // "light", "dark", or empty for both
}

// Cache holds the caching hints of a result. The zero value means that the result must not be cached. The hints become
// members of a result when it is sent; package json alone does not encode them.
//
// Spec: server/utilities/caching (2026-07-28); schema CacheableResult.
type Cache struct {
	// TTL is how long the result may be cached. It is ttlMs on the wire, in whole milliseconds.
	TTL time.Duration `json:"-"`
	// Scope is who may share the cached result: CachePrivate, the default, or CachePublic.
	Scope CacheScope `json:"-"`
}

// A cacheableResult is a result that embeds a Cache.
type cacheableResult interface{ cacheHints() Cache }

func (c Cache) cacheHints() Cache { return c }

func (c *Cache) setCacheHints(hints Cache) { *c = hints }

// A CacheScope says who may share a cached answer.
type CacheScope string

// Cache scopes. Spec: server/utilities/caching (2026-07-28).
const (
	CachePrivate CacheScope = "private" // the same caller only
	CachePublic  CacheScope = "public"  // everyone, whatever they are allowed: for what is no secret to anybody
)

// appendCache appends the hints as members of a result.
func appendCache(dst []byte, c Cache) ([]byte, error) {
	if !utf8.ValidString(string(c.Scope)) {
		return nil, fmt.Errorf("cacheScope: invalid UTF-8")
	}
	dst = strconv.AppendInt(append(dst, `"ttlMs":`...), c.TTL.Milliseconds(), 10)
	return jsonscan.AppendQuote(append(dst, `,"cacheScope":`...), string(c.Scope)), nil
}

func (c Cache) validate() error {
	if c.TTL < 0 {
		return fmt.Errorf("invalid Cache.TTL %v: must not be negative", c.TTL)
	}
	switch c.Scope {
	case "", CachePrivate, CachePublic:
		return nil
	}
	return fmt.Errorf("Cache.Scope is %q, want %q or %q", c.Scope, CachePrivate, CachePublic)
}

// orPrivate is the hint as it goes on the wire: nothing is public by accident.
func (c Cache) orPrivate() Cache {
	if c.Scope == "" {
		c.Scope = CachePrivate
	}
	return c
}
