package oauthclient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxStoreKey limits a key of a Store, in bytes.
	maxStoreKey = 4 << 10
	// maxScopes limits the scopes of a peer and of a request: they travel in URLs.
	maxScopes = 100
	// renewBefore is how long before its expiry a token is renewed; less for short-lived tokens.
	renewBefore = 30 * time.Second
)

// A serverRecord is the stored data of an MCP server: its authorization server, and where its
// tokens are renewed and revoked.
type serverRecord struct {
	Issuer   string `json:"issuer"`
	Resource string `json:"resource,omitempty"`
	// Scope is the network scope of the MCP server at its discovery.
	Scope oauthfetch.NetworkScope `json:"reach,omitempty"`
	// Server contains the metadata that is needed without a discovery.
	Server *oauth.ServerMetadata `json:"server"`
}

func (d *discovery) record() *serverRecord {
	m := d.Server
	return &serverRecord{Issuer: d.Issuer, Resource: d.Resource, Scope: d.scope, Server: &oauth.ServerMetadata{
		Issuer:                        d.Issuer,
		TokenEndpoint:                 m.TokenEndpoint,
		TokenEndpointAuthMethods:      m.TokenEndpointAuthMethods,
		TokenEndpointAuthAlgorithms:   m.TokenEndpointAuthAlgorithms,
		RevocationEndpoint:            m.RevocationEndpoint,
		RevocationEndpointAuthMethods: m.RevocationEndpointAuthMethods,
		DPoPAlgorithms:                m.DPoPAlgorithms,
	}}
}

func (r *serverRecord) discovery() *discovery {
	return &discovery{Issuer: r.Issuer, Resource: r.Resource, Server: r.Server, scope: r.Scope}
}

// covers reports whether the identifier of the server covers a path of its origin. In revision
// 2025-03-26 a server is identified by its origin.
func (r *serverRecord) covers(u *url.URL) bool {
	above := "/"
	if r.Resource != "" {
		resource, err := url.Parse(r.Resource)
		if err != nil || resource.RawQuery != "" {
			return false
		}
		above = resource.EscapedPath()
	}
	return netx.PathContains(above, u.EscapedPath())
}

// storeKey returns a key of the store, which is a digest if the parts are too long.
func storeKey(parts ...string) string {
	key := strings.Join(parts, " ")
	if len(key) <= maxStoreKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return parts[0] + " sha256:" + hex.EncodeToString(sum[:])
}

// serverKey returns the key of the serverRecord. A query may be secret, so only its digest is used.
func (t *Transport) serverKey() string {
	address := strings.ToLower(t.endpoint.Scheme) + "://" + netx.HostPort(t.endpoint) +
		cmp.Or(t.endpoint.EscapedPath(), "/")
	if t.endpoint.RawQuery != "" {
		sum := sha256.Sum256([]byte(t.endpoint.RawQuery))
		address += "?sha256=" + hex.EncodeToString(sum[:])
	}
	return storeKey("server", address)
}

func tokensKey(issuer, resource string) string { return storeKey("tokens", issuer, resource) }

func clientKey(issuer string) string { return storeKey("client", issuer) }

func load[T any](ctx context.Context, s Store, key string) (*T, error) {
	data, err := s.Load(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("oauth: read the store: %w", err)
	}
	return decodeStored[T](data)
}

// errUnreadable is the error of a stored value that cannot be decoded. A login or logout replaces
// it.
var errUnreadable = errors.New("oauth: unreadable value in the store")

func decodeStored[T any](data []byte) (*T, error) {
	if data == nil {
		return nil, nil
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, errUnreadable
	}
	return v, nil
}

// save writes a value to the store. nil removes it.
func save[T any](ctx context.Context, s *writeBackStore, key string, v *T) error {
	var data []byte
	var err error
	if v != nil {
		if data, err = json.Marshal(v); err != nil {
			return fmt.Errorf("oauth: encode for the store: %w", err)
		}
	}
	if _, err = s.replace(ctx, key, data); err != nil {
		return fmt.Errorf("oauth: write to the store: %w", err)
	}
	return nil
}

// reload reads the tokens of the server from the store, and keeps them in memory.
func (t *Transport) reload(ctx context.Context) (tokens *TokenSet, err error) {
	record, err := load[serverRecord](ctx, t.store, t.serverKey())
	if err == nil && record != nil {
		tokens, err = load[TokenSet](ctx, t.store, tokensKey(record.Issuer, record.Resource))
	}
	if err != nil {
		return nil, err
	}
	if !t.belongsToClient(tokens) {
		tokens = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loaded, t.record, t.tokens = true, cmp.Or(record, t.record), tokens
	return tokens, nil
}

func (t *Transport) belongsToClient(tokens *TokenSet) bool {
	switch {
	case tokens == nil:
		return false
	case t.client.ID != "" && tokens.ClientID != t.client.ID,
		t.client.Issuer != "" && !oauthwire.IsSameIssuer(tokens.Issuer, t.client.Issuer):
		return false
	case tokens.TokenType == oauthwire.DPoP:
		return t.prover != nil && tokens.KeyThumbprint == t.prover.Thumbprint()
	}
	return t.prover == nil || t.prover.CheckTokenType(tokens.TokenType) == nil
}

// storeTokens keeps tokens and the serverRecord in memory and in the store. A failure of the store
// is logged: the request can go on.
func (t *Transport) storeTokens(ctx context.Context, record *serverRecord, tokens *TokenSet, logouts int) {
	t.mu.Lock()
	if t.logouts != logouts {
		t.mu.Unlock()
		return // only for the requests that wait
	}
	before := t.record
	t.loaded, t.record, t.tokens = true, record, tokens
	t.mu.Unlock()
	err := save(ctx, t.store, tokensKey(record.Issuer, record.Resource), tokens)
	err = errors.Join(err, save(ctx, t.store, t.serverKey(), record))
	if before != nil && (before.Issuer != record.Issuer || before.Resource != record.Resource) {
		t.log.Warn("oauth: the authorization server or the identifier of the server has changed",
			"before", before.Issuer, "now", record.Issuer)
		err = errors.Join(err, save[TokenSet](ctx, t.store, tokensKey(before.Issuer, before.Resource), nil))
	}
	if err != nil {
		t.log.Error("oauth: tokens were not stored", "error", err)
	}
}

// setTokens keeps tokens of the store in memory, unless Logout was called since.
func (t *Transport) setTokens(tokens *TokenSet, logouts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.logouts == logouts {
		t.tokens = tokens
	}
}

// currentTokens returns the tokens, or nil. It renews expiring ones if that does not
// involve the user. revision is that of MCP; it may be empty.
func (t *Transport) currentTokens(ctx context.Context, revision string) (*TokenSet, error) {
	t.mu.Lock()
	tokens, isLoaded := t.tokens, t.loaded
	t.mu.Unlock()
	if !isLoaded {
		var err error
		if tokens, err = t.reload(ctx); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	if tokens == nil || tokens.RefreshToken == "" && t.needsUser() ||
		!tokens.expiresBefore(now.Add(min(renewBefore, tokens.Expires.Sub(tokens.Issued)/10))) {
		return tokens, nil
	}
	got, err := t.acquire(ctx, &need{kind: needRenewal, used: tokens, revision: revision})
	switch {
	case err == nil:
		return got.tokens, nil
	case ctx.Err() == nil && !tokens.expiresBefore(now):
		t.log.Warn("oauth: an expiring token was not renewed", "error", err)
		return tokens, nil
	}
	return nil, err
}

func (s *TokenSet) expiresBefore(at time.Time) bool {
	return !s.Expires.IsZero() && !s.Expires.After(at)
}

// boundedScopes returns the valid scopes of a list that a peer sent, at most maxScopes. Spec: RFC
// 6749, section 3.3.
func boundedScopes(text string) []string {
	return union(slices.DeleteFunc(strings.Fields(text), func(s string) bool { return !oauthwire.IsScope(s) }))
}

func validateScopes(scopes []string) error {
	for _, scope := range scopes {
		if !oauthwire.IsScope(scope) {
			return fmt.Errorf("oauth: invalid scope %q: must have the syntax of a scope", scope)
		}
	}
	return nil
}

// union returns the elements of all lists without duplicates, in their order, at most maxScopes.
func union(lists ...[]string) []string {
	var all []string
	for _, scope := range slices.Concat(lists...) {
		if len(all) < maxScopes && !slices.Contains(all, scope) {
			all = append(all, scope)
		}
	}
	return all
}

func includes(have, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}

// A LoginStatus describes the login at a server. It contains no secrets.
type LoginStatus struct {
	Endpoint  string    // the MCP server, without a query
	Issuer    string    // the authorization server
	ClientID  string    // of this program at the issuer
	Resource  string    // the identifier of the MCP server; empty without an identifier
	Scopes    []string  // that were granted, as far as is known
	TokenType string    // Bearer or DPoP
	Expires   time.Time // of the access token; zero if it is not known
	Renewable bool      // the tokens can be renewed without the user
}

// Status returns the state of the login, nil if there are no tokens. It only reads the store: the
// tokens may have been revoked.
func (t *Transport) Status(ctx context.Context) (*LoginStatus, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	tokens, err := t.reload(ctx)
	if err != nil || tokens == nil {
		return nil, err
	}
	return &LoginStatus{
		Endpoint: oauthfetch.ShownURL(t.endpoint), Issuer: tokens.Issuer, ClientID: tokens.ClientID,
		Resource: tokens.Resource, Scopes: slices.Clone(tokens.Scopes), TokenType: tokens.TokenType,
		Expires: tokens.Expires, Renewable: tokens.RefreshToken != "",
	}, nil
}

// Token returns tokens for use outside of the Transport. It renews them if they expire, and uses a
// grant that needs no user. If a login is needed the error is an [*AuthorizeError] that wraps
// [ErrLoginRequired].
func (t *Transport) Token(ctx context.Context) (*TokenSet, error) {
	if t.invalid != nil {
		return nil, t.failed(http.StatusUnauthorized, t.invalid)
	}
	tokens, err := t.currentTokens(ctx, "")
	if err == nil && (tokens == nil || tokens.expiresBefore(time.Now())) {
		if t.needsUser() {
			err = t.loginRequired(nil)
		} else {
			tokens, err = t.login(ctx)
		}
	}
	if err != nil {
		return nil, t.failed(http.StatusUnauthorized, err)
	}
	withoutClient := *tokens
	withoutClient.Client = nil // callers do not renew the tokens
	return &withoutClient, nil
}
