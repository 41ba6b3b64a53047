package mcp

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

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

func (i *Implementation) append(dst []byte) ([]byte, error) {
	o := newObject(dst)
	o.text("name", i.Name)
	o.text("version", i.Version)
	o.textIfAny("title", i.Title)
	o.textIfAny("description", i.Description)
	o.textIfAny("websiteUrl", i.WebsiteURL)
	o.icons(i.Icons)
	return o.end()
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

// Cache says how long and for whom an answer stays good. The zero value says: use it once.
//
// Spec: server/utilities/caching (2026-07-28).
type Cache struct {
	// TTLMs is the number of milliseconds for which the answer may be used again.
	TTLMs int64 `json:"ttlMs"`
	// Scope is who may use it again: CachePrivate, the default, or CachePublic.
	Scope CacheScope `json:"cacheScope"`
}

// A CacheScope says who may share a cached answer.
type CacheScope string

// Cache scopes. Spec: server/utilities/caching (2026-07-28).
const (
	CachePrivate CacheScope = "private" // the same caller only
	CachePublic  CacheScope = "public"  // everyone, whatever they are allowed: for what is no secret to anybody
)

// appendCache writes the hint as members of a result. It is no method, since extensions embed a Cache in results that
// have more to say.
func appendCache(dst []byte, c Cache) ([]byte, error) {
	if !utf8.ValidString(string(c.Scope)) {
		return nil, fmt.Errorf("cacheScope: invalid UTF-8")
	}
	dst = strconv.AppendInt(append(dst, `"ttlMs":`...), c.TTLMs, 10)
	return jsonscan.AppendQuote(append(dst, `,"cacheScope":`...), string(c.Scope)), nil
}

func (c Cache) validate() error {
	if c.TTLMs < 0 {
		return fmt.Errorf("Cache.TTLMs is %d, want 0 or more", c.TTLMs)
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
