package oauth_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// A decisionLog collects the decisions of Require.
type decisionLog struct {
	mu  sync.Mutex // guards all
	all []oauth.Decision
}

func (l *decisionLog) record(_ context.Context, d oauth.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
}

// take returns the decisions since the last call.
func (l *decisionLog) take() []oauth.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

func isScopeError(err error) bool {
	_, ok := errors.AsType[*oauth.ScopeError](err)
	return ok
}

func isNoToken(err error) bool { return err != nil && strings.Contains(err.Error(), "no access token") }

type verifierFunc func(ctx context.Context, token string) (*oauth.Token, error)

func (f verifierFunc) Verify(ctx context.Context, token string) (*oauth.Token, error) {
	return f(ctx, token)
}

func TestAuditReceivesEachDecision(t *testing.T) {
	log := &decisionLog{}
	opts := &oauth.RequireOptions{Scopes: oauth.AllOf("read"), Audit: log.record}
	served := 0
	h := protect(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if served++; len(log.all) == 0 && r.Method == "POST" {
			t.Error("the handler ran before Audit was called")
		}
	}), opts)
	good := issue(t)
	for name, tt := range map[string]struct {
		header  string
		target  string
		status  int
		subject string
		is      func(err error) bool
	}{
		"accepted":         {"Authorization: Bearer " + good, "/mcp", 0, "ann", func(err error) bool { return err == nil }},
		"another path":     {"Authorization: Bearer " + good, "/mcp/x%2Fy", 0, "ann", func(err error) bool { return err == nil }},
		"no token":         {"X-Other: 1", "/mcp", 401, "", isNoToken},
		"another scheme":   {"Authorization: Basic eDp5", "/mcp", 401, "", isNoToken},
		"token in the URL": {"X-Other: 1", "/mcp?access_token=" + good, 400, "", func(err error) bool { return err != nil }},
		"expired": {"Authorization: Bearer " + issue(t, claims{"exp": time.Now().Add(-time.Hour).Unix()}), "/mcp", 401, "",
			func(err error) bool { return errors.Is(err, oauth.ErrTokenExpired) }},
		// Requirement: SEC-06
		"another audience": {"Authorization: Bearer " + issue(t, claims{"aud": "https://other.example"}), "/mcp", 401, "",
			func(err error) bool {
				return errors.Is(err, oauth.ErrInvalidToken) && strings.Contains(err.Error(), "audience")
			}},
		"without the scope": {"Authorization: Bearer " + issue(t, claims{"scope": "write"}), "/mcp", 403, "ann", isScopeError},
		"bound to a key": {"Authorization: Bearer " + issue(t, claims{"cnf": claims{"jkt": "x"}}), "/mcp", 401, "",
			func(err error) bool {
				return errors.Is(err, oauth.ErrInvalidToken) && strings.Contains(err.Error(), "bound to a key")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			served = 0
			w := do(h, "POST", tt.target, "", tt.header)
			all := log.take()
			if len(all) != 1 {
				t.Fatalf("got %d decisions, want 1", len(all))
			}
			d := all[0]
			subject := ""
			if d.Principal != nil {
				subject = d.Principal.Subject
			}
			path, _, _ := strings.Cut(tt.target, "?")
			if d.Status != tt.status || d.Status != 0 && d.Status != w.Code || subject != tt.subject || !tt.is(d.Err) ||
				d.Method != "POST" || d.Target != path || d.RemoteAddr == "" {
				t.Errorf("got %+v with subject %q for status %d", d, subject, w.Code)
			}
			if (served == 1) != (d.Err == nil) {
				t.Errorf("the handler ran %d times for the error %v", served, d.Err)
			}
			if d.Err != nil && strings.Contains(d.Err.Error(), good) {
				t.Errorf("the error contains the token: %v", d.Err)
			}
		})
	}
	do(h, "OPTIONS", "/mcp", "", "Origin: https://a.example", "Access-Control-Request-Method: POST")
	do(h, "GET", "/.well-known/oauth-protected-resource", "")
	if all := log.take(); len(all) != 0 {
		t.Errorf("got %+v for requests that need no token, want no decision", all)
	}
}

func TestAuditReceivesUnverifiedTokens(t *testing.T) {
	log := &decisionLog{}
	h := oauth.Require(verifierFunc(func(context.Context, string) (*oauth.Token, error) {
		return nil, errors.New("authorization server unreachable")
	}), testMetadata(), &oauth.RequireOptions{Logger: discardLog, Audit: log.record})(echo)
	do(h, "POST", "/mcp", "", "Authorization: Bearer opaque")
	if all := log.take(); len(all) != 1 || all[0].Status != 503 || all[0].Principal != nil ||
		!strings.Contains(all[0].Err.Error(), "unreachable") {
		t.Errorf("got %+v, want one decision with status 503", all)
	}
}

// A refusal for want of a tool's scopes is a second decision about its request, in every revision.
func TestAuditReceivesRefusalsOfTools(t *testing.T) {
	log := &decisionLog{}
	opts := &oauth.RequireOptions{Scopes: oauth.AllOf("read"), Audit: log.record}
	check := func(t *testing.T, send func(token, tool string)) {
		t.Helper()
		send("read", "write")
		all := log.take()
		d := all[len(all)-1]
		if len(all) != 2 || all[0].Err != nil || d.Status != 403 || !isScopeError(d.Err) || d.Principal == nil ||
			d.Principal.Subject != "ann" || d.Method != "tools/call" || d.Target != "write" || d.RemoteAddr == "" {
			t.Errorf("got %+v, want that the request was accepted and the tool refused", all)
		}
		send("read", "who")
		if all := log.take(); len(all) != 1 || all[0].Err != nil {
			t.Errorf("got %+v, want one decision without an error", all)
		}
	}
	t.Run(july2026, func(t *testing.T) {
		s := newTestServer(t, newScopedServer(), opts)
		check(t, func(scope, tool string) { s.modern(s.token("ann", scope), "tools/call", tool, `"name":"`+tool+`",`) })
	})
	for _, revision := range []string{march2025, june2025, november2025} {
		t.Run(revision, func(t *testing.T) {
			s := newTestServer(t, newScopedServer(), opts)
			session := s.openSession(s.token("ann", "read"), revision)
			log.take()
			check(t, func(scope, tool string) { s.postInSession(s.token("ann", scope), session, toolCall(tool)) })
		})
	}
}
