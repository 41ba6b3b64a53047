package oauth_test

import (
	"errors"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	asOIDC = "https://as.example/.well-known/openid-configuration"
	issuer = "https://as.example"
)

// serverDoc returns the valid metadata of an authorization server.
func serverDoc(issuer string) string {
	return `{"issuer":"` + issuer + `","authorization_endpoint":"` + issuer + `/authorize","token_endpoint":"` + issuer +
		`/token","registration_endpoint":"` + issuer + `/register","response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`
}

func TestFetchServerMetadata(t *testing.T) {
	w := newNetwork(t)
	w.Doc(asOIDC, serverDoc(issuer))
	m, err := w.fetcher(nil).FetchServerMetadata(t.Context(), issuer)
	if err != nil || m.TokenEndpoint != issuer+"/token" {
		t.Errorf("got %+v, error %v; want the token endpoint %s/token", m, err, issuer)
	}
	if _, err := w.fetcher(nil).FetchServerMetadata(t.Context(), "https://none.example"); !errors.Is(err, oauth.ErrNoMetadata) {
		t.Errorf("no document: got error %v, want ErrNoMetadata", err)
	}
	if _, err := w.fetcher(nil).FetchServerMetadata(t.Context(), "https://10.0.0.1"); !errors.Is(err, oauth.ErrURLRefused) {
		t.Errorf("private address: got error %v, want ErrURLRefused", err)
	}
}
