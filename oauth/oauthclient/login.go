package oauthclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Login obtains new tokens for the server, even if there are some; with an [Authorizer] the user
// logs in. It first asks the server which login it requires. The error is an [*AuthorizeError].
func (t *Transport) Login(ctx context.Context) error {
	if t.invalid != nil {
		return t.failed(http.StatusUnauthorized, t.invalid)
	}
	if _, err := t.login(ctx); err != nil {
		return t.failed(http.StatusUnauthorized, err)
	}
	return nil
}

func (t *Transport) login(ctx context.Context) (*TokenSet, error) {
	n, err := t.probe(ctx)
	if err != nil {
		return nil, err
	}
	got, err := t.acquire(ctx, n)
	if err != nil {
		return nil, err
	}
	return got.tokens, nil
}

// probe sends requests without a token to learn which login the server requires. A server that does
// not refuse them may still publish metadata.
func (t *Transport) probe(ctx context.Context) (*need, error) {
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	n := &need{kind: needLogin}
	for _, method := range []string{http.MethodPost, http.MethodGet} { // HTTP+SSE servers may support only GET
		wants, err := t.probeWith(probing, method)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("oauth: request without a token: %w", err)
		}
		if wants != nil && wants.kind == needToken {
			n.challenge, n.scopes, n.refused = wants.challenge, wants.scopes, true
			break
		}
	}
	return n, nil
}

// probeWith sends server/discover with POST, as a client does, or a GET. It returns nil if the
// server does not refuse the request.
func (t *Transport) probeWith(ctx context.Context, method string) (*need, error) {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(probeBody)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.endpoint.String(), body)
	if err != nil {
		return nil, errors.New("oauth: invalid address of the server")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(headerRevision, wire.Latest().String())
		req.Header.Set("Mcp-Method", "server/discover")
	}
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close() // may be an endless stream
	return newNeed(res, nil), nil
}

// Logout removes the tokens for the server, and revokes them if its authorization server supports
// that. The Transport removes them even with an error; they may remain in a store that fails.
// Logout also removes the dynamic registration of the client, so that the next login registers
// again; a client of [Identity] is kept. Close clients first: a later request of a client logs in
// again, except the request that ends a session, which the server then refuses.
//
// It is not an error if the authorization server supports only the revocation of refresh tokens.
// The access token, such as a JWT, then stays valid until it expires.
//
// Spec: RFC 7009, sections 2 and 2.2.1.
func (t *Transport) Logout(ctx context.Context) error {
	if t.invalid != nil {
		return t.invalid
	}
	t.mu.Lock()
	t.logouts++ // so that flows in progress do not store tokens
	t.mu.Unlock()
	record, stored, failed := t.unstore(ctx)
	t.mu.Lock()
	dropped := cmp.Or(stored, t.tokens)
	t.tokens, t.record, t.metadataChallenge, t.loaded = nil, nil, nil, true
	clear(t.failures)
	t.mu.Unlock()
	if record == nil {
		return failed
	}
	if dropped != nil { // before the registration is removed, because revoke authenticates the client
		failed = errors.Join(failed, t.revoke(ctx, record, dropped))
	}
	return errors.Join(failed, save[Registration](ctx, t.store, clientKey(record.Issuer), nil))
}

// unstore removes the tokens of the server, even unreadable tokens, from the store and returns
// them.
func (t *Transport) unstore(ctx context.Context) (record *serverRecord, tokens *TokenSet, err error) {
	record, err = load[serverRecord](ctx, t.store, t.serverKey())
	isThere := record != nil || err != nil
	if errors.Is(err, errUnreadable) {
		t.log.Warn("oauth: removing an unreadable value from the store")
		err = nil
	}
	t.mu.Lock()
	record = cmp.Or(record, t.record)
	t.mu.Unlock()
	if record != nil {
		old, failed := t.store.replace(ctx, tokensKey(record.Issuer, record.Resource), nil)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("oauth: write to the store: %w", failed))
		}
		if tokens, failed = decodeStored[TokenSet](old); failed != nil {
			t.log.Warn("oauth: removing unreadable tokens from the store")
		}
	}
	if isThere {
		err = errors.Join(err, save[serverRecord](ctx, t.store, t.serverKey(), nil))
	}
	return record, tokens, err
}

// revoke revokes the refresh token first: authorization servers revoke the access token with it.
func (t *Transport) revoke(ctx context.Context, record *serverRecord, tokens *TokenSet) error {
	if record.Server == nil || record.Server.RevocationEndpoint == "" || record.Issuer != tokens.Issuer {
		return nil
	}
	client, err := t.clientOf(ctx, tokens)
	if err != nil {
		return err
	}
	server := *record.Server
	if len(server.RevocationEndpointAuthMethods) > 0 {
		server.TokenEndpointAuthMethods = server.RevocationEndpointAuthMethods
	}
	endpoint := t.tokenEndpoint(&server, client, "", record.Scope)
	var all []error
	for _, one := range []struct{ token, hint string }{
		{tokens.RefreshToken, "refresh_token"}, {tokens.AccessToken, hintAccess},
	} {
		if one.token == "" {
			continue
		}
		form, header, err := endpoint.authenticated(url.Values{"token": {one.token}, "token_type_hint": {one.hint}})
		if err != nil {
			return err
		}
		response, err := endpoint.fetcher.PostForm(ctx, server.RevocationEndpoint, form, header)
		switch {
		case err != nil:
			all = append(all, err)
		case one.hint == hintAccess && response.Status == http.StatusBadRequest && isUnsupportedType(response.Body):
		case response.Status != http.StatusOK && response.Status != http.StatusNoContent:
			all = append(all, fmt.Errorf("oauth: revoke the tokens: HTTP %d", response.Status))
		}
	}
	return errors.Join(all...)
}

const hintAccess = "access_token" // Spec: RFC 7009, section 2.1

// isUnsupportedType reports whether the server does not revoke tokens of this type. Spec: RFC 7009,
// section 2.2.1.
func isUnsupportedType(body []byte) bool {
	var response struct {
		Code string `json:"error"`
	}
	return oauthfetch.Decode(body, &response) == nil && response.Code == "unsupported_token_type"
}

const probeTimeout = 10 * time.Second

var probeBody = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"` + wire.Latest().String() + `",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"patchbay","version":"0"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}`
