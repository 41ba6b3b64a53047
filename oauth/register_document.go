package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxClientName is how long the name of a client may be, in bytes: it is for a line of a page.
	maxClientName = 200
	// maxRedirectURIs bounds those of one client. Real ones have a handful.
	maxRedirectURIs = 32
	// documentLife is for how long others may keep the document of a client: a changed one is seen within the hour.
	documentLife = time.Hour
	// silentDocumentLife is for how long a document is kept that says nothing of it, and maxDocumentLife the most.
	silentDocumentLife, maxDocumentLife = 5 * time.Minute, 24 * time.Hour
)

// Validate says what is wrong with the metadata as the document at a URL which is used as a client's id: the URL is https
// and has a path, the document holds it byte for byte, a name and redirect URIs, and there is no secret that both sides
// would have to know.
//
// Spec: basic/authorization/client-registration, Client ID Metadata Documents (2025-11-25 and later).
func (m *ClientMetadata) Validate(clientID string) error {
	p := &policy{}
	if _, err := p.checkClientID(clientID); err != nil {
		return fmt.Errorf("oauth: the client id: %w", err)
	}
	if err := m.checkDocument(clientID); err != nil {
		return fmt.Errorf("oauth: the document of the client: %w", err)
	}
	return nil
}

// checkClientID refuses what cannot be the URL of a Client ID Metadata Document.
func (p *policy) checkClientID(clientID string) (*url.URL, error) {
	u, err := p.checkText(clientID)
	if err != nil {
		return nil, err
	}
	path := u.EscapedPath()
	if path == "" || path == "/" {
		return nil, refuse("it has no path")
	}
	if !isPathWithin(path, "") {
		return nil, refuse("its path has dots for segments")
	}
	return u, nil
}

func (m *ClientMetadata) checkDocument(clientID string) error {
	switch {
	case m.ClientID != clientID:
		return errors.New("its client_id is not the URL that it is at")
	case m.Name == "":
		return errors.New("it has no client_name")
	case len(m.Name) > maxClientName || !isLine(m.Name):
		return fmt.Errorf("its client_name is no line of at most %d bytes", maxClientName)
	case len(m.RedirectURIs) == 0:
		return errors.New("it has no redirect_uris")
	case len(m.RedirectURIs) > maxRedirectURIs:
		return fmt.Errorf("it has more than %d redirect_uris", maxRedirectURIs)
	case strings.HasPrefix(m.TokenEndpointAuthMethod, "client_secret_"):
		return errors.New("its token_endpoint_auth_method needs a secret that both sides know")
	}
	for _, uri := range m.RedirectURIs {
		if err := CheckRedirectURI(uri); err != nil {
			return err
		}
	}
	for _, link := range []struct{ name, text string }{
		{"client_uri", m.URI}, {"logo_uri", m.LogoURI}, {"tos_uri", m.TermsURI}, {"policy_uri", m.PolicyURI}, {"jwks_uri", m.JWKSURI},
	} {
		if link.text == "" {
			continue
		}
		u, err := parseURL(link.text)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			return fmt.Errorf("its %s is no https URL", link.name)
		}
	}
	return nil
}

// isLine reports whether a text stands on one line and looks like what it is: marks that turn the direction of what
// follows, for one, are no part of a name.
func isLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// NewClientMetadataHandler returns a handler that serves the metadata of a client as a Client ID Metadata Document. It has
// to be at the URL that is meta's ClientID. The error is that of [ClientMetadata.Validate]. meta is not used later.
//
// Spec: basic/authorization/client-registration, Client ID Metadata Documents (2025-11-25 and later).
func NewClientMetadataHandler(meta *ClientMetadata) (http.Handler, error) {
	if err := meta.Validate(meta.ClientID); err != nil {
		return nil, err
	}
	data, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("oauth: encode the document of the client: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(documentLife/time.Second)))
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
	}), nil
}

// FetchClientMetadata fetches and validates the Client ID Metadata Document that a client names as its id, and tells for
// how long it may be kept: as the response says, at most a day; 5 minutes if it says nothing; 0 for not at all. Redirects
// are not followed, since the id is the URL that the document is at. The error is a [*FetchError] if there is no document,
// and a [*DiscoveryError] if it is not valid.
//
// Spec: basic/authorization/client-registration, Client ID Metadata Documents (2025-11-25 and later).
func (f *Fetcher) FetchClientMetadata(ctx context.Context, clientID string) (*ClientMetadata, time.Duration, error) {
	u, err := f.policy.checkClientID(clientID)
	if err != nil {
		return nil, 0, &FetchError{URL: shown(u), Err: err}
	}
	direct := *f
	direct.redirects = 0
	var doc struct {
		ClientMetadata `json:",inline"`
		Secret         jsontext.Value `json:"client_secret"`
		SecretExpires  jsontext.Value `json:"client_secret_expires_at"`
	}
	header, err := direct.getDocument(ctx, clientID, nil, &doc)
	if err != nil {
		return nil, 0, err
	}
	if doc.Secret != nil || doc.SecretExpires != nil {
		err = errors.New("it holds a secret")
	} else {
		err = doc.checkDocument(clientID)
	}
	if err != nil {
		return nil, 0, &DiscoveryError{URL: shown(u), Err: err}
	}
	return &doc.ClientMetadata, freshness(header, time.Now()), nil
}

// freshness tells for how long a response may be kept.
//
// Spec: RFC 9111, sections 4.2 and 5.2.2.
func freshness(header http.Header, now time.Time) time.Duration {
	var directives []string
	for _, line := range header.Values("Cache-Control") {
		for part := range strings.SplitSeq(strings.ToLower(line), ",") {
			directives = append(directives, strings.TrimSpace(part))
		}
	}
	for _, never := range []string{"no-store", "no-cache", "private"} {
		if slices.ContainsFunc(directives, func(d string) bool { return d == never || strings.HasPrefix(d, never+"=") }) {
			return 0
		}
	}
	age, _ := strconv.ParseUint(header.Get("Age"), 10, 31)
	for _, name := range []string{"s-maxage=", "max-age="} {
		for _, d := range directives {
			if text, ok := strings.CutPrefix(d, name); ok {
				seconds, err := strconv.ParseUint(strings.Trim(text, `"`), 10, 31)
				if err != nil {
					return 0
				}
				return boundedLife(time.Duration(seconds)*time.Second - time.Duration(age)*time.Second)
			}
		}
	}
	if header.Get("Expires") != "" {
		expires, err := http.ParseTime(header.Get("Expires"))
		if err != nil {
			return 0
		}
		return boundedLife(expires.Sub(now))
	}
	return silentDocumentLife
}

func boundedLife(d time.Duration) time.Duration { return min(max(d, 0), maxDocumentLife) }
