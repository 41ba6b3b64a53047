package servercard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Media types.
const (
	// MediaType is the media type of a card.
	MediaType = "application/mcp-server-card+json"
	// CatalogMediaType is the media type of a catalogue.
	CatalogMediaType = "application/ai-catalog+json"
)

// Paths of documents.
const (
	suffix      = "/server-card" // after the path of an endpoint
	pathCatalog = "/.well-known/ai-catalog.json"
)

// earlierPaths are the paths of a site's only card in earlier drafts, which clients still ask for.
var earlierPaths = []string{"/.well-known/mcp/server-card", "/.well-known/mcp/server-card.json"}

// maxAge is how long documents may be cached. Spec: docs/discovery.md, Caching.
const maxAge = "public, max-age=3600"

// Serve returns middleware that serves cards, and passes all other requests to the next handler.
// Everybody may read the cards, so the middleware belongs before that of authorization. The paths
// are:
//
//   - the path of each endpoint of a card, with /server-card after it: /mcp/server-card for
//     https://example.com/mcp. A proxy must not remove the beginning of the path.
//   - /.well-known/ai-catalog.json: a catalogue of the cards, for clients that know only the domain
//   - /.well-known/mcp/server-card and server-card.json, if there is one card only: the paths of
//     earlier drafts
//
// Web pages of every origin may read the documents. The documents carry an ETag, and may be cached
// for an hour. Serve panics if a card is invalid or no remote of it has a URL without variables, or
// if two cards share a name or an endpoint.
//
// Spec: docs/discovery.md, Hosted Server Card Location, CORS Requirements, Caching; AI Catalog,
// Well-Known URI.
func Serve(cards ...*Card) func(next http.Handler) http.Handler {
	documents, err := newDocuments(cards)
	if err != nil {
		panic("servercard: Serve: " + err.Error())
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d := documents[r.URL.Path]; d != nil {
				d.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// newDocuments returns the documents by path.
func newDocuments(cards []*Card) (map[string]*document, error) {
	all := map[string]*document{}
	index := catalog{SpecVersion: specVersion, Entries: []entry{}}
	var names []string
	for _, c := range cards {
		if err := c.Validate(); err != nil {
			return nil, err
		}
		if slices.Contains(names, c.Name) {
			return nil, fmt.Errorf("two cards have the name %q", c.Name)
		}
		names = append(names, c.Name)
		text, err := c.MarshalJSON()
		if err != nil {
			return nil, err
		}
		d := newDocument(MediaType, text)
		endpoints := c.Endpoints()
		if len(endpoints) == 0 {
			return nil, fmt.Errorf("the card %q has no remote with a URL without variables", c.Name)
		}
		for i, endpoint := range endpoints {
			u, err := url.Parse(endpoint)
			if err != nil {
				return nil, err
			}
			location := cardOf(u)
			if i == 0 {
				index.Entries = append(index.Entries,
					entry{Identifier: identifier(c.Name), Type: MediaType, URL: location.String()})
			}
			if other := all[location.Path]; other != nil && other != d {
				return nil, fmt.Errorf("the cards of two servers have the path %q", location.Path)
			}
			all[location.Path] = d
		}
		if len(cards) == 1 {
			for _, path := range earlierPaths {
				all[path] = d
			}
		}
	}
	if len(cards) == 0 {
		return nil, errors.New("there are no cards")
	}
	text, err := json.Marshal(index)
	all[pathCatalog] = newDocument(CatalogMediaType, text)
	return all, err
}

// cardOf returns the URL of the card of an endpoint. Spec: docs/discovery.md, Hosted Server Card
// Location.
func cardOf(endpoint *url.URL) *url.URL {
	return (&url.URL{Scheme: endpoint.Scheme, Host: endpoint.Host, Path: strings.TrimSuffix(endpoint.Path, "/")}).
		JoinPath(suffix)
}

// A document is served to everybody.
type document struct {
	kind string
	tag  string
	text []byte
}

func newDocument(kind string, text []byte) *document {
	const size = 16 // bytes of the hash, which only has to differ after a change
	sum := sha256.Sum256(text)
	return &document{kind: kind, tag: `"` + hex.EncodeToString(sum[:size]) + `"`, text: text}
}

// ServeHTTP serves the document, or an empty response with the status 304 for a client that holds it.
func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Access-Control-Allow-Origin", "*")
	head.Set("Access-Control-Allow-Methods", "GET")
	head.Set("Access-Control-Allow-Headers", "Content-Type, If-None-Match")
	head.Set("Access-Control-Expose-Headers", "ETag")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		head.Set("Content-Type", d.kind)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Cache-Control", maxAge)
		head.Set("ETag", d.tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.text))
	case http.MethodOptions:
		head.Set("Allow", "GET, HEAD, OPTIONS")
		w.WriteHeader(http.StatusNoContent)
	default:
		head.Set("Allow", "GET, HEAD, OPTIONS")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}
