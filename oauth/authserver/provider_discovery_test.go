package authserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// The first request after a start is canceled while the metadata is fetched.
func TestCanceledLoginKeepsDiscovery(t *testing.T) {
	p := newIDP(t)
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known") {
			asked <- struct{}{}
			<-answer
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	p.URL = front.URL
	w := newInProcessEnv(t, func(o *authserver.Options) { withProviders(t, p.provider("idp"))(o) })
	first, second := w.browser(), w.browser()
	_, form := first.consentPage(authorizeQuery())
	location := first.decide(form, "allow").Header.Get("Location")
	ctx, closeBrowser := context.WithCancel(t.Context())
	defer closeBrowser()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		w.send(first.client, w.request(http.MethodGet, location, "").WithContext(ctx))
	}()
	<-asked
	closeBrowser()
	close(answer)
	<-gone
	if code := second.viaProvider(p).Get("code"); code == "" {
		t.Error("the next user cannot log in")
	}
	if n := p.count("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("the metadata was fetched %d times", n)
	}
}
