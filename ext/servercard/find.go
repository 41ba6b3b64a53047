package servercard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A Claim is a card that was found, and is not verified; see the documentation of the package.
type Claim struct {
	// Source is the URL of the card, or of the catalogue that contains the card. The claim is that
	// of the publisher of this URL.
	Source string `json:"source"`
	Card   *Card  `json:"card"`
}

// Find returns the cards of a site, whose URL is that of an endpoint, of a page, or has no path. It
// reads the card beside the path of the URL, the catalogue of the site and up to 8 cards that the
// catalogue names, also at other sites, and without these the paths of earlier drafts. Catalogues in
// a catalogue are not read.
//
// A document that does not exist, or is not JSON, is not an error. Find returns the cards that it
// found together with an error that says which documents it could not use.
//
// f may be nil. Its rules hold for every request: they protect private networks, send no
// credentials, follow redirects within an origin only, and limit the sizes; see [oauth.Fetcher].
// All requests together may take as long as the fetcher allows for one exchange, 10 seconds by
// default. Find connects to no endpoint of a card. It is safe for concurrent use.
//
// Spec: docs/discovery.md, Client Discovery Flow.
func Find(ctx context.Context, f *oauth.Fetcher, site string) ([]Claim, error) {
	u, err := parseURL(site)
	if err != nil {
		return nil, fmt.Errorf("servercard: find: %w", err)
	}
	if f == nil {
		f = oauth.NewFetcher(nil)
	}
	s := &search{fetcher: (*oauthfetch.Fetcher)(f.For(u))}
	ctx, cancel := context.WithTimeout(ctx, s.fetcher.Timeout())
	defer cancel()
	if u.Path != "" && u.Path != "/" {
		s.readCard(ctx, cardOf(u).String())
	}
	s.readCatalog(ctx, netx.Origin(u)+pathCatalog)
	for _, path := range earlierPaths {
		if len(s.claims) == 0 && s.problems == nil {
			s.readCard(ctx, netx.Origin(u)+path)
		}
	}
	if s.problems != nil {
		return s.claims, fmt.Errorf("servercard: find: %w", s.problems)
	}
	return s.claims, nil
}

// A search collects the cards of a site.
type search struct {
	fetcher  *oauthfetch.Fetcher
	claims   []Claim
	problems error
}

// fail notes the problem of a document. A document that does not exist is not a problem.
func (s *search) fail(address string, err error) {
	failed, ok := errors.AsType[*oauthfetch.Error](err)
	switch {
	case err == nil || ok && isAbsent(failed):
		return
	case ok && failed.Err == nil:
		err = fmt.Errorf("HTTP %d", failed.Status)
	case ok:
		err = failed.Err
	}
	s.problems = errors.Join(s.problems, fmt.Errorf("%s: %w", address, err))
}

// isAbsent reports whether a site answered with something else than a document: a page, or a
// redirect to a page.
func isAbsent(e *oauthfetch.Error) bool {
	isStatus := e.Err == nil && e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests
	return isStatus || oauthfetch.IsNotJSON(e) || e.Status/100 == 3
}

func (s *search) readCard(ctx context.Context, address string) {
	if s.has(address) {
		return
	}
	r, err := s.fetcher.Get(ctx, address, MediaType)
	if err != nil {
		s.fail(address, err)
		return
	}
	c, err := parse(r.Decode)
	s.add(address, c, asFetchError(r, err))
}

// add adds a card to the claims, unless it could not be read.
func (s *search) add(source string, c *Card, err error) {
	if err != nil {
		s.fail(source, err)
		return
	}
	s.claims = append(s.claims, Claim{Source: source, Card: c})
}

func (s *search) has(source string) bool {
	for _, c := range s.claims {
		if c.Source == source {
			return true
		}
	}
	return false
}

func (s *search) readCatalog(ctx context.Context, address string) {
	r, err := s.fetcher.Get(ctx, address, CatalogMediaType)
	if err != nil {
		s.fail(address, err)
		return
	}
	var c catalog
	err = asFetchError(r, r.Decode(&c))
	var entries []entry
	if err == nil {
		entries, err = c.cards()
	}
	s.fail(address, err)
	for _, e := range entries {
		s.readEntry(ctx, address, e)
	}
}

// readEntry reads the card of an entry. Spec: AI Catalog, Catalog Entry: exactly one of url and data.
func (s *search) readEntry(ctx context.Context, source string, e entry) {
	switch {
	case (e.URL == "") == (e.Data == nil):
		s.fail(source, fmt.Errorf("the entry %.200q must contain either url or data", e.Identifier))
	case e.Data != nil:
		c, err := parse(func(into any) error { return oauthfetch.Decode(e.Data, into) })
		s.add(source, c, err)
	default:
		u, err := url.Parse(source)
		if err == nil {
			u, err = u.Parse(e.URL) // sites also publish relative references
		}
		if err == nil {
			u, err = parseURL(u.String())
		}
		if err != nil {
			s.fail(source, fmt.Errorf("the entry %.200q has an invalid url: must be http or https", e.Identifier))
			return
		}
		s.readCard(ctx, u.String())
	}
}

// asFetchError adds the response to the error of decoding it.
func asFetchError(r *oauthfetch.Response, err error) error {
	if err == nil {
		return nil
	}
	return &oauthfetch.Error{URL: r.URL, Status: r.Status, Err: err}
}
