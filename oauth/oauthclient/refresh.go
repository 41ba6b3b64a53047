package oauthclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

var (
	// temporaryCodes are errors of a token endpoint that do not concern the refresh token: the next
	// attempt may succeed.
	temporaryCodes = []string{"", "server_error", "temporarily_unavailable", "slow_down"}
	// permanentCodes are final whatever their status is: some servers send them with 200 or 403.
	permanentCodes = []string{oauthwire.InvalidGrant, oauthwire.InvalidClient, "unauthorized_client",
		"bad_refresh_token"}
)

// isPermanent reports whether a token endpoint has refused a refresh token or the client for good.
// A refusal with a status that RFC 6749 does not use may come from a proxy.
//
// Spec: RFC 6749, section 5.2.
func isPermanent(err error) bool {
	refused, ok := errors.AsType[*TokenError](err)
	switch {
	case !ok || refused.Status/100 == 5:
		return false
	case refused.Status == http.StatusBadRequest, refused.Status == http.StatusUnauthorized:
		return !slices.Contains(temporaryCodes, refused.Code)
	}
	return slices.Contains(permanentCodes, refused.Code)
}

// renew renews tokens with their refresh token, once for all goroutines and processes that find
// them expired: the first one updates the store, and the others find its result. If the
// authorization server no longer accepts the refresh token, the tokens are removed and the outcome
// has none. Other failures are errors and leave the tokens as they are.
//
// A renewal is not cancelled once it has begun: the authorization server may have replaced the
// refresh token, and only its response has the new one.
func (t *Transport) renew(ctx context.Context, held *TokenSet) (*outcome, error) {
	t.mu.Lock()
	known, logouts := t.known, t.logouts
	t.mu.Unlock()
	if known == nil || known.Server == nil || held.Issuer != known.Issuer {
		return &outcome{}, nil // no known token endpoint
	}
	client, err := t.clientOf(ctx, held)
	if err != nil {
		return nil, err
	}
	result := &outcome{}
	var refused error // of the tokens
	asked := false
	err = t.store.Update(ctx, tokensKey(known.Issuer, known.Resource), func(old []byte) ([]byte, error) {
		stored, err := decodeStored[TokenSet](old)
		switch {
		case err != nil:
			return nil, err
		case stored == nil:
			return nil, nil // logged out meanwhile
		case stored.AccessToken != held.AccessToken && !stored.expiresBefore(time.Now()):
			result.tokens = stored // renewed meanwhile
			return old, nil
		case stored.RefreshToken == "":
			return old, nil
		}
		asked = true
		fresh, err := t.tokenEndpoint(known.Server, client, known.Resource,
			known.Scope).refresh(context.WithoutCancel(ctx), stored)
		if isPermanent(err) {
			refused = err
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		result.tokens, result.source = fresh, fromRefresh
		return json.Marshal(fresh)
	})
	if refused != nil {
		t.log.Info("oauth: the authorization server no longer renews the tokens", "error", refused)
		if isTokenError(refused, oauthwire.InvalidClient) {
			err = errors.Join(err, t.forgetClient(context.WithoutCancel(ctx), client))
		}
	}
	if err != nil && (refused != nil || result.source == fromRefresh) {
		// The result is kept in memory.
		t.log.Error("oauth: the renewed tokens were not stored", "error", err)
		err = nil
	}
	if err != nil {
		if !asked {
			err = fmt.Errorf("oauth: write to the store: %w", err)
		}
		return nil, err
	}
	t.setTokens(result.tokens, logouts)
	return result, nil
}

// refresh requests new tokens with a refresh token. Values that the response omits stay the same.
//
// Spec: RFC 6749, section 6; basic/authorization#resource-parameter-implementation.
func (e *tokenEndpoint) refresh(ctx context.Context, old *TokenSet) (*TokenSet, error) {
	fresh, err := e.request(ctx, url.Values{"grant_type": {grantRefresh}, "refresh_token": {old.RefreshToken}})
	if err != nil {
		return nil, err
	}
	if fresh.RefreshToken == "" {
		fresh.RefreshToken = old.RefreshToken
	}
	if len(fresh.Scopes) == 0 {
		fresh.Scopes = old.Scopes
	}
	fresh.Requested, fresh.Challenged, fresh.Client = old.Requested, old.Challenged, old.Client
	return fresh, nil
}
