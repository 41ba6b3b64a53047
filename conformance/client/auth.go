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

// A told is the context of a scenario that the suite passes in MCP_CONFORMANCE_CONTEXT.
type told struct {
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
type setup func(told *told, o *oauthclient.TransportOptions) error

// authorized returns a scenario in which authorization must succeed.
func authorized(change setup) scenario {
	return scenario{play: call("test-tool", nil), auth: change}
}

// turnedAway returns a scenario in which the client must stop with the given error.
func turnedAway(reason func(error) bool) scenario {
	s := authorized(byBrowser)
	s.givesUp = reason
	return s
}

func badAnswer(err error) bool { return errors.Is(err, oauthclient.ErrInvalidResponse) }

func badMetadata(err error) bool {
	_, ok := errors.AsType[*oauth.DiscoveryError](err)
	return ok
}

func stepUpInVain(err error) bool {
	_, ok := errors.AsType[*oauthclient.StepUpError](err)
	return ok
}

var authScenarios = map[string]scenario{
	"auth/metadata-default":                     authorized(byBrowser),
	"auth/metadata-var1":                        authorized(byBrowser),
	"auth/metadata-var2":                        authorized(byBrowser),
	"auth/metadata-var3":                        authorized(byBrowser),
	"auth/2025-03-26-oauth-metadata-backcompat": authorized(byBrowser),
	"auth/2025-03-26-oauth-endpoint-fallback":   authorized(byBrowser),
	"auth/scope-from-www-authenticate":          authorized(byBrowser),
	"auth/scope-from-scopes-supported":          authorized(byBrowser),
	"auth/scope-omitted-when-undefined":         authorized(byBrowser),
	"auth/scope-step-up":                        authorized(byBrowser),
	"auth/scope-retry-limit":                    turnedAway(stepUpInVain),
	"auth/token-endpoint-auth-basic":            authorized(byBrowser),
	"auth/token-endpoint-auth-post":             authorized(byBrowser),
	"auth/token-endpoint-auth-none":             authorized(byBrowser),
	"auth/offline-access-scope":                 authorized(byBrowser),
	"auth/offline-access-not-supported":         authorized(byBrowser),
	"auth/authorization-server-migration":       authorized(byBrowser),
	"auth/iss-supported":                        authorized(byBrowser),
	"auth/iss-not-advertised":                   authorized(byBrowser),
	"auth/iss-supported-missing":                turnedAway(badAnswer),
	"auth/iss-wrong-issuer":                     turnedAway(badAnswer),
	"auth/iss-unexpected":                       turnedAway(badAnswer),
	"auth/iss-normalized":                       turnedAway(badAnswer),
	"auth/metadata-issuer-mismatch":             turnedAway(badMetadata),
	"auth/resource-mismatch":                    turnedAway(badMetadata),
	"auth/basic-cimd":                           authorized(byDocument),
	"auth/pre-registration":                     authorized(byRegistration),
	"auth/client-credentials-jwt":               authorized(byKey),
	"auth/client-credentials-basic":             authorized(bySecret),
	"auth/enterprise-managed-authorization":     authorized(byEnterprise),
	"auth/cross-app-access-complete-flow":       authorized(byEnterprise), // the name in the released suite
	"auth/wif-jwt-bearer":                       authorized(byWorkload),
	"auth/dpop":                                 authorized(byBoundToken),
	"auth/dpop-nonce":                           authorized(byBoundToken),
}

func byBrowser(*told, *oauthclient.TransportOptions) error { return nil }

func byDocument(_ *told, o *oauthclient.TransportOptions) error {
	o.Client.MetadataURL = clientMetadata
	return nil
}

func byRegistration(told *told, o *oauthclient.TransportOptions) error {
	o.Client.ID, o.Client.Secret, o.Client.Issuer = told.ClientID, told.ClientSecret, told.Issuer
	// Only suites later than the revision pass the owner of the client.
	o.Client.InsecureAnyIssuer = told.Issuer == ""
	return nil
}

func bySecret(told *told, o *oauthclient.TransportOptions) error {
	o.Grant = oauthclient.NewClientCredentialsGrant()
	return byRegistration(told, o)
}

func byKey(told *told, o *oauthclient.TransportOptions) error {
	key, err := oauthclient.ParsePrivateKey([]byte(told.PrivateKey))
	if err != nil {
		return err
	}
	o.Client.Key = &oauthclient.AssertionKey{Key: key, Algorithm: told.Algorithm}
	return bySecret(told, o)
}

func byEnterprise(told *told, o *oauthclient.TransportOptions) error {
	if err := byRegistration(told, o); err != nil {
		return err
	}
	o.Grant = oauthclient.NewEnterpriseGrant(&oauthclient.EnterpriseOptions{
		TokenEndpoint: told.IDPTokenEndpoint,
		ClientID:      told.IDPClientID,
		Subject: func(context.Context) (string, string, error) {
			return told.IDPToken, oauthclient.TokenTypeID, nil
		},
	})
	return nil
}

func byWorkload(told *told, o *oauthclient.TransportOptions) error {
	o.Grant = oauthclient.NewWorkloadGrant(func(context.Context, string) (string, error) { return told.WorkloadJWT, nil })
	return byRegistration(told, o)
}

func byBoundToken(_ *told, o *oauthclient.TransportOptions) error {
	o.DPoP = &oauthclient.DPoPOptions{}
	return nil
}

// newAuthorization returns the authorization of a scenario.
func newAuthorization(endpoint string, change setup, log *slog.Logger) (*oauthclient.Transport, error) {
	o := &oauthclient.TransportOptions{
		Authorizer: oauthclient.NewAuthorizer(redirectURI, agree),
		Client:     oauthclient.Identity{Metadata: oauth.ClientMetadata{Name: "patchbay-everything-client"}},
		Fetcher:    oauth.NewFetcher(&oauth.FetcherOptions{Logger: log}),
		Logger:     log,
	}
	var t told
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return nil, fmt.Errorf("the context of the scenario: %w", err)
		}
	}
	if err := change(&t, o); err != nil {
		return nil, err
	}
	return oauthclient.NewTransport(endpoint, o), nil
}

// agree accepts every consent like a user, and does not follow the final redirect to the callback.
func agree(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
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
		return nil, fmt.Errorf("the authorization server answers %s: %w", res.Status, err)
	}
	return answer.Query(), nil
}

// gaveUp returns an error if the client continued although it must not, or stopped for another
// reason.
func gaveUp(err error, reason func(error) bool) error {
	_, refused := errors.AsType[*oauthclient.AuthorizeError](err)
	switch {
	case err == nil:
		return errors.New("the client was let in, which must not be")
	case !refused || !reason(err):
		return fmt.Errorf("the client ended for another reason than it should have: %w", err)
	}
	return nil
}
