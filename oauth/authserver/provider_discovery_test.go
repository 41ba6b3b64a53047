package authserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The first request after a start is canceled while the metadata is fetched.
func TestCanceledLoginKeepsDiscovery(t *testing.T) {
	p := newIDP(t)
	requested, release := make(chan struct{}, 2), make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known") {
			requested <- struct{}{}
			<-release
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	p.URL = front.URL
	w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
	first, second := w.browser(), w.browser()
	_, form := first.consentPage(authorizeQuery())
	location := first.decide(form, "allow").Header.Get("Location")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.send(first.client, w.request(http.MethodGet, location, "").WithContext(ctx))
	}()
	<-requested
	cancel()
	close(release)
	<-done
	if code := second.viaProvider(p).Get("code"); code == "" {
		t.Error("the login of the next user returned no code")
	}
	if n := p.count("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("the metadata was fetched %d times, want once", n)
	}
}
