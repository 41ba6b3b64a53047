package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// redirectURI is the redirect URI of logins. The authorization response is read from the
	// redirect; no server listens there.
	redirectURI = "http://127.0.0.1:3000/callback"
	// clientMetadata is the URL of the client ID metadata document that the suites expect.
	clientMetadata = "https://conformance-test.local/client-metadata.json"
)

// A suiteContext is the context of a scenario that the suite passes in MCP_CONFORMANCE_CONTEXT.
type suiteContext struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	Issuer       string `json:"issuer"`
	// For client credentials.
	PrivateKey string `json:"private_key_pem"`
	Algorithm  string `json:"signing_algorithm"`
	// For enterprise authorization. The released suite passes no issuer of the identity provider.
	IDPClientID      string `json:"idp_client_id"`
	IDPToken         string `json:"idp_id_token"`
	IDPTokenEndpoint string `json:"idp_token_endpoint"`
	// For workload identity.
	WorkloadJWT string `json:"valid_jwt"`
}

// A setup changes the client's authorization for a scenario.
type setup func(sc *suiteContext, o *oauthclient.TransportOptions) error

// authorized returns a scenario in which authorization must succeed.
func authorized(change setup) scenario {
	return scenario{steps: call("test-tool", nil), auth: change}
}

// rejected returns a scenario in which the client must stop with the given error.
func rejected(isExpected func(error) bool) scenario {
	s := authorized(withBrowser)
	s.isExpectedError = isExpected
	return s
}

func isInvalidResponse(err error) bool { return errors.Is(err, oauthclient.ErrInvalidResponse) }

func isDiscoveryError(err error) bool {
	_, ok := errors.AsType[*oauth.DiscoveryError](err)
	return ok
}

func isStepUpError(err error) bool {
	_, ok := errors.AsType[*oauthclient.StepUpError](err)
	return ok
}

var authScenarios = map[string]scenario{
	"auth/metadata-default":                     authorized(withBrowser),
	"auth/metadata-var1":                        authorized(withBrowser),
	"auth/metadata-var2":                        authorized(withBrowser),
	"auth/metadata-var3":                        authorized(withBrowser),
	"auth/2025-03-26-oauth-metadata-backcompat": authorized(withBrowser),
	"auth/2025-03-26-oauth-endpoint-fallback":   authorized(withBrowser),
	"auth/scope-from-www-authenticate":          authorized(withBrowser),
	"auth/scope-from-scopes-supported":          authorized(withBrowser),
	"auth/scope-omitted-when-undefined":         authorized(withBrowser),
	"auth/scope-step-up":                        authorized(withBrowser),
	"auth/scope-retry-limit":                    rejected(isStepUpError),
	"auth/token-endpoint-auth-basic":            authorized(withBrowser),
	"auth/token-endpoint-auth-post":             authorized(withBrowser),
	"auth/token-endpoint-auth-none":             authorized(withBrowser),
	"auth/offline-access-scope":                 authorized(withBrowser),
	"auth/offline-access-not-supported":         authorized(withBrowser),
	"auth/authorization-server-migration":       authorized(withBrowser),
	"auth/iss-supported":                        authorized(withBrowser),
	"auth/iss-not-advertised":                   authorized(withBrowser),
	"auth/iss-supported-missing":                rejected(isInvalidResponse),
	"auth/iss-wrong-issuer":                     rejected(isInvalidResponse),
	"auth/iss-unexpected":                       rejected(isInvalidResponse),
	"auth/iss-normalized":                       rejected(isInvalidResponse),
	"auth/metadata-issuer-mismatch":             rejected(isDiscoveryError),
	"auth/resource-mismatch":                    rejected(isDiscoveryError),
	"auth/basic-cimd":                           authorized(withMetadataDocument),
	"auth/pre-registration":                     authorized(withRegisteredClient),
	"auth/client-credentials-jwt":               authorized(withPrivateKey),
	"auth/client-credentials-basic":             authorized(withClientSecret),
	"auth/enterprise-managed-authorization":     authorized(withEnterpriseGrant),
	"auth/cross-app-access-complete-flow":       authorized(withEnterpriseGrant), // the name in the released suite
	"auth/wif-jwt-bearer":                       authorized(withWorkloadGrant),
	"auth/dpop":                                 authorized(withDPoP),
	"auth/dpop-nonce":                           authorized(withDPoP),
}

func withBrowser(*suiteContext, *oauthclient.TransportOptions) error { return nil }

func withMetadataDocument(_ *suiteContext, o *oauthclient.TransportOptions) error {
	o.Client.MetadataURL = clientMetadata
	return nil
}

func withRegisteredClient(sc *suiteContext, o *oauthclient.TransportOptions) error {
	o.Client.ID, o.Client.Secret, o.Client.Issuer = sc.ClientID, sc.ClientSecret, sc.Issuer
	// Only suites later than the revision pass the issuer of the client.
	o.Client.InsecureAnyIssuer = sc.Issuer == ""
	return nil
}

func withClientSecret(sc *suiteContext, o *oauthclient.TransportOptions) error {
	o.Grant = oauthclient.NewClientCredentialsGrant()
	return withRegisteredClient(sc, o)
}

func withPrivateKey(sc *suiteContext, o *oauthclient.TransportOptions) error {
	key, err := oauthclient.ParsePrivateKey([]byte(sc.PrivateKey))
	if err != nil {
		return err
	}
	o.Client.Key = &oauthclient.AssertionKey{Key: key, Algorithm: sc.Algorithm}
	return withClientSecret(sc, o)
}

func withEnterpriseGrant(sc *suiteContext, o *oauthclient.TransportOptions) error {
	if err := withRegisteredClient(sc, o); err != nil {
		return err
	}
	o.Grant = oauthclient.NewEnterpriseGrant(&oauthclient.EnterpriseOptions{
		TokenEndpoint: sc.IDPTokenEndpoint,
		ClientID:      sc.IDPClientID,
		Subject: func(context.Context) (string, string, error) {
			return sc.IDPToken, oauthclient.TokenTypeID, nil
		},
	})
	return nil
}

func withWorkloadGrant(sc *suiteContext, o *oauthclient.TransportOptions) error {
	o.Grant = oauthclient.NewWorkloadGrant(func(context.Context, string) (string, error) { return sc.WorkloadJWT, nil })
	return withRegisteredClient(sc, o)
}

func withDPoP(_ *suiteContext, o *oauthclient.TransportOptions) error {
	o.DPoP = &oauthclient.DPoPOptions{}
	return nil
}

// newAuthorization returns the authorization of a scenario.
func newAuthorization(endpoint string, change setup, log *slog.Logger) (*oauthclient.Transport, error) {
	o := &oauthclient.TransportOptions{
		Authorizer: oauthclient.NewAuthorizer(redirectURI, consent),
		Client:     oauthclient.Identity{Metadata: oauth.ClientMetadata{Name: "patchbay-everything-client"}},
		Fetcher:    oauth.NewFetcher(&oauth.FetcherOptions{Logger: log}),
		Logger:     log,
	}
	var sc suiteContext
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &sc); err != nil {
			return nil, fmt.Errorf("invalid MCP_CONFORMANCE_CONTEXT: %w", err)
		}
	}
	if err := change(&sc, o); err != nil {
		return nil, err
	}
	return oauthclient.NewTransport(endpoint, o), nil
}

// consent accepts every consent like a user, and does not follow the final redirect to the
// callback.
func consent(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, login.URL, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := res.Location()
	if err != nil {
		return nil, fmt.Errorf("authorization server: status %s without a redirect: %w", res.Status, err)
	}
	return answer.Query(), nil
}

// checkRejection returns an error if the client succeeded although it must not, or failed with an
// unexpected error.
func checkRejection(err error, isExpected func(error) bool) error {
	_, isAuthorizeError := errors.AsType[*oauthclient.AuthorizeError](err)
	switch {
	case err == nil:
		return errors.New("authorization succeeded, want an error")
	case !isAuthorizeError || !isExpected(err):
		return fmt.Errorf("unexpected error: %w", err)
	}
	return nil
}
