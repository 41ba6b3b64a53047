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

// serverDoc is the metadata of an authorization server that has nothing wrong with it.
func serverDoc(issuer string) string {
	return `{"issuer":"` + issuer + `","authorization_endpoint":"` + issuer + `/authorize","token_endpoint":"` + issuer +
		`/token","registration_endpoint":"` + issuer + `/register","response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`
}

func TestFetchServerMetadata(t *testing.T) {
	w := newNetwork(t)
	w.Doc(asOIDC, serverDoc(issuer))
	m, err := w.fetcher(nil).FetchServerMetadata(t.Context(), issuer)
	if err != nil || m.TokenEndpoint != issuer+"/token" {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := w.fetcher(nil).FetchServerMetadata(t.Context(), "https://none.example"); !errors.Is(err, oauth.ErrNoMetadata) {
		t.Errorf("got %v", err)
	}
	if _, err := w.fetcher(nil).FetchServerMetadata(t.Context(), "https://10.0.0.1"); !errors.Is(err, oauth.ErrURLRefused) {
		t.Errorf("got %v", err)
	}
}
