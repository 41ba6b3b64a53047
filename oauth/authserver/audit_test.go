package authserver_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func TestAuditSeesEachActionAndRefusal(t *testing.T) {
	var mu sync.Mutex
	var events []authserver.AuditEvent
	w := newInProcessEnv(t, func(o *authserver.Options) {
		o.Audit = func(_ context.Context, e authserver.AuditEvent) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}
	})
	type result struct {
		action, client, subject string
		refused                 bool
	}
	wantEvents := func(what string, want ...result) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(events) != len(want) {
			t.Fatalf("%s: events %+v, want %v", what, events, want)
		}
		for i, e := range events {
			if got := (result{e.Action, e.Client, e.Subject, e.Refused}); got != want[i] || e.Address != "192.0.2.1" {
				t.Errorf("%s: event %d is %+v, want %v from 192.0.2.1", what, i, e, want[i])
			}
			if e.Refused && e.Reason == "" {
				t.Errorf("%s: event %+v has no reason", what, e)
			}
		}
		events = nil
	}
	code := w.code()
	wantEvents("login", result{"consent", publicID, "", false}, result{"login", publicID, "alice", false})
	got := w.tokensOf(w.post("/token", exchangeForm(code)))
	wantEvents("token", result{"token", publicID, "alice", false})
	next := w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
	wantEvents("refresh", result{"refresh", publicID, "alice", false})
	w.post("/revoke", url.Values{"token": {next.Refresh}, "client_id": {publicID}})
	wantEvents("revocation", result{"revocation", publicID, "alice", false})
	w.post("/token", refreshForm(next.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	wantEvents("refused refresh", result{"refresh", publicID, "", true})
	w.post("/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID},
		"client_secret": {"wrong"}}).wantError(t, http.StatusUnauthorized, "invalid_client")
	wantEvents("wrong secret", result{"token", "", "", true})
	b := w.browser()
	_, form := b.consentPage(authorizeQuery())
	b.decide(form, "deny")
	wantEvents("denied consent", result{"consent", publicID, "", true})
	w.post("/token", exchangeForm(code)).wantError(t, http.StatusBadRequest, "invalid_grant")
	for _, e := range events {
		for _, secret := range []string{code, got.Access, got.Refresh} {
			if strings.Contains(e.Reason+e.Grant, secret) {
				t.Errorf("event %+v has a secret", e)
			}
		}
	}
}
