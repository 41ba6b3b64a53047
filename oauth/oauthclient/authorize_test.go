package oauthclient_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// The iss of an authorization response is compared before the code is used, in success and error
// responses.
//
// Requirement: REG-21, REG-22, REG-23, REG-24, REG-25
func TestIssuerOfResponse(t *testing.T) {
	const absent = "absent"
	for name, c := range map[string]struct {
		advertised bool
		iss        string
		ok         bool
	}{
		"advertised and present":     {true, clientIssuer, true},            // Requirement: REG-21
		"advertised and absent":      {true, absent, false},                 // Requirement: REG-21
		"not advertised and absent":  {false, absent, true},                 // Requirement: REG-22
		"not advertised and right":   {false, clientIssuer, true},           // Requirement: REG-22
		"not advertised and wrong":   {false, otherIssuer, false},           // Requirement: REG-22
		"another issuer":             {true, otherIssuer, false},            // Requirement: REG-22
		"empty":                      {false, "", false},                    // Requirement: REG-22
		"with a slash":               {true, clientIssuer + "/", false},     // Requirement: REG-23
		"with a port":                {true, clientIssuer + ":443", false},  // Requirement: REG-23
		"in upper case":              {true, "https://AS.example", false},   // Requirement: REG-23
		"escaped":                    {true, "https://as%2Eexample", false}, // Requirement: REG-23
		"another scheme in its case": {true, "HTTPS://as.example", false},   // Requirement: REG-23
	} {
		for _, isError := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				withEnv(t, func(t *testing.T, w *testEnv) {
					w.as.document["authorization_response_iss_parameter_supported"] = c.advertised
					w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
						answer.Set("iss", c.iss)
						if c.iss == absent {
							answer.Del("iss")
						}
						if isError {
							answer.Del("code")
							answer.Set("error", "access_denied")
							answer.Set("error_description", "text of another server")
						}
						return answer, nil
					})
					checkResponse(t, w, c.ok, isError)
				})
			})
		}
	}
}

// checkResponse makes a login and checks how its authorization response is handled: ok tells
// whether the response is to be accepted, isError whether it is an error response. The code must
// not reach a token endpoint of any authorization server unless the response is accepted.
func checkResponse(t *testing.T, w *testEnv, ok, isError bool) {
	t.Helper()
	_, _, err := post(w.transport(nil), t.Context())
	refused, isLoginError := errors.AsType[*oauthclient.LoginError](err)
	tokens := 0
	for _, s := range w.servers {
		tokens += s.count("authorization_code")
	}
	switch {
	case ok && isError:
		if !isLoginError || refused.Code != "access_denied" || tokens != 0 {
			t.Errorf("got error %v and %d token requests, want access_denied and 0", err, tokens)
		}
	case ok:
		if err != nil || tokens != 1 {
			t.Errorf("got error %v and %d token requests, want success and 1", err, tokens)
		}
	case !errors.Is(err, oauthclient.ErrInvalidResponse), isLoginError, strings.Contains(err.Error(),
		"another server"), strings.Contains(err.Error(), "access_denied"):
		t.Errorf("got error %v, want ErrInvalidResponse without text of the response", err)
	case tokens != 0:
		t.Error("the code was sent to a token endpoint")
	}
}

func TestInvalidAuthorizationResponses(t *testing.T) {
	for name, change := range map[string]func(answer url.Values){
		"another state":   func(a url.Values) { a.Set("state", strings.Repeat("x", 43)) }, // Requirement: AUTHR-23
		"no state":        func(a url.Values) { a.Del("state") },                          // Requirement: AUTHR-23
		"state and more":  func(a url.Values) { a.Set("state", a.Get("state")+"x") },      // Requirement: AUTHR-23
		"state cut off":   func(a url.Values) { a.Set("state", a.Get("state")[:42]) },     // Requirement: AUTHR-23
		"state twice":     func(a url.Values) { a.Add("state", a.Get("state")) },
		"code twice":      func(a url.Values) { a.Add("code", "another") },
		"issuer twice":    func(a url.Values) { a.Add("iss", otherIssuer) },
		"no code":         func(a url.Values) { a.Del("code") },
		"a code of 9 KiB": func(a url.Values) { a.Set("code", strings.Repeat("x", 9<<10)) },
		"empty response":  func(a url.Values) { clear(a) },
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
					change(answer)
					return answer, nil
				})
				checkResponse(t, w, false, false)
			})
		})
	}
}

// The code of another login is refused by the token endpoint, since the PKCE verifier differs.
func TestCodeInjection(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		var theirs string
		w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
			theirs = answer.Get("code")
			return nil, errors.New("the attacker keeps the code")
		})
		_, _, _ = post(w.transport(nil), t.Context())
		w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
			answer.Set("code", theirs)
			return answer, nil
		})
		tr := w.transport(nil)
		_, _, err := post(tr, t.Context())
		if refused, ok := errors.AsType[*oauthclient.TokenError](err); !ok || refused.Code != "invalid_grant" ||
			strings.Contains(err.Error(), theirs) {
			t.Errorf("got error %v, want invalid_grant without the code", err)
		}
		if s, err := tr.Status(t.Context()); s != nil || err != nil {
			t.Errorf("got status %v, error %v; want no tokens", s, err)
		}
	})
}

// The metadata of the server names another authorization server while the user logs in.
//
// Requirement: REG-19
func TestIssuerIsRecordedBeforeTheRedirect(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.newServer(otherIssuer)
		w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
			w.rs.document(otherIssuer, nil)
			answer.Set("iss", otherIssuer)
			return answer, nil
		})
		checkResponse(t, w, false, false)
	})
}

// The attacking authorization server redirects the user to another one, to receive its code.
func TestMixUpAttackIsRefused(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		honest := w.newServer(otherIssuer)
		w.changeResponse(func(login *oauthclient.LoginRequest, _ url.Values) (url.Values, error) {
			u, _ := url.Parse(login.URL)
			honest.set(func(s *fakeServer) { s.clients[u.Query().Get("client_id")] = "" })
			return honest.authorize(u.Query()), nil
		})
		checkResponse(t, w, false, false)
	})
}

// Requirement: AUTH-12, AUTHR-21
func TestEachLoginHasItsOwnStateAndChallenge(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		seen := map[string]bool{}
		for range 5 {
			if err := tr.Login(t.Context()); err != nil {
				t.Fatal(err)
			}
			if method := w.as.last.Get("code_challenge_method"); method != "S256" {
				t.Errorf("got code_challenge_method %q, want S256", method)
			}
			for _, name := range []string{"state", "code_challenge"} {
				if text := w.as.last.Get(name); len(text) != 43 || seen[text] {
					t.Errorf("login without a new %s of 43 characters: got %q", name, text)
				} else {
					seen[text] = true
				}
			}
		}
	})
}

// Requirement: AUTHR-20
func TestLoginWithoutPKCE(t *testing.T) {
	for name, methods := range map[string]any{"none": nil, "plain": []string{"plain"}, "lower case": []string{"s256"}} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.as.document["code_challenge_methods_supported"] = methods
				if methods == nil {
					delete(w.as.document, "code_challenge_methods_supported")
				}
				if _, _, err := post(w.transport(nil), t.Context()); err == nil ||
					!strings.Contains(err.Error(), "PKCE") {
					t.Errorf("got error %v, want one about PKCE", err)
				}
				if w.loginCount() != 0 || w.as.count("register") != 0 {
					t.Error("the client registered or logged in, want neither")
				}
			})
		})
	}
}

// Servers of 2025-03-26 have no resource metadata and no resource parameter.
//
// Requirement: AUTHB-02
func TestLoginsOf2025_03_26(t *testing.T) {
	const origin = "https://mcp.example"
	for name, hasMetadata := range map[string]bool{"metadata at the origin": true, // Requirement: AUTHB-03
		"no metadata at all": false} { // Requirement: AUTHB-05
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				as := w.newServer(origin)
				as.resource, as.noIss = "", true
				delete(as.document, "authorization_response_iss_parameter_supported")
				if !hasMetadata {
					w.Page(origin+"/.well-known/oauth-authorization-server", http.NotFound)
				}
				w.Page(w.rs.path, http.NotFound)
				w.rs.as, w.rs.silent, w.rs.servers = as, true, []*fakeServer{as}
				tr := w.transport(nil)
				w.mustPost(tr)
				as.revokeAccess()
				w.mustPost(tr)
				if n := as.count("refresh_token"); n != 1 || w.loginCount() != 1 {
					t.Errorf("got %d renewals and %d logins, want 1 and 1", n, w.loginCount())
				}
				if status, _, err := send(tr, t.Context(), origin+"/messages"); status != http.StatusOK {
					t.Errorf("another path of the origin: got %d, error %v; want 200", status, err)
				}
				w.leaks = nil // the origin is the resource
			})
		})
	}
}

// The requested scopes follow from the challenge, the metadata and the options.
//
// Requirement: AUTHR-31
func TestRequestedScopes(t *testing.T) {
	for name, c := range map[string]struct {
		challenge       string
		resource, has   []string
		options, grants []string
		want            string
		prompt          string
	}{
		// Requirement: AUTHR-32
		"of the challenge": {challenge: "a b", resource: []string{"c"}, want: "a b"},
		// Requirement: AUTHR-32
		"of the metadata": {resource: []string{"c", "d"}, want: "c d"},
		// Requirement: AUTHR-32
		"none": {want: ""},
		// Requirement: AUTHR-31
		"not in the metadata":   {challenge: "x", resource: []string{"c"}, has: []string{"c"}, want: "x"},
		"options and challenge": {challenge: "a", options: []string{"b", "a"}, want: "a b"},
		"options and metadata":  {resource: []string{"c"}, options: []string{"b"}, want: "b"},
		"offline": {challenge: "a", has: []string{"a", "offline_access"}, // Requirement: AUTHR-40
			want: "a offline_access", prompt: "consent"},
		"offline, unknown":      {challenge: "a", has: []string{"a"}, want: "a"}, // Requirement: AUTHR-40
		"offline, nothing else": {has: []string{"offline_access"}, want: ""},     // Requirement: AUTHR-40
		"offline, not wanted": {challenge: "a", has: []string{"offline_access"}, // Requirement: AUTHR-40
			grants: []string{"authorization_code"}, want: "a"},
		"offline, of the resource":     {resource: []string{"a", "offline_access"}, want: "a"}, // Requirement: AUTHR-41
		"white space in the challenge": {challenge: "a a  b\tb", want: "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.rs.document(clientIssuer, c.resource)
				w.as.document["scopes_supported"] = c.has
				w.rs.challenge = func(int, string) []string {
					if c.challenge == "" {
						return []string{`Bearer resource_metadata="` + w.rs.path + `"`}
					}
					return []string{`Negotiate abc`,
						`Bearer resource_metadata="` + w.rs.path + `", scope="` + c.challenge + `"`}
				}
				client := oauthclient.Identity{Metadata: oauth.ClientMetadata{GrantTypes: c.grants}}
				if c.grants != nil {
					client = oauthclient.Identity{ID: "mine", Issuer: clientIssuer, Metadata: client.Metadata}
					w.as.clients["mine"] = ""
				}
				w.mustPost(w.transport(&oauthclient.TransportOptions{Scopes: c.options, Client: client}))
				if got := w.as.last; got.Get("scope") != c.want || got.Has("scope") != (c.want != "") ||
					got.Get("prompt") != c.prompt {
					t.Errorf("requested scope %q, prompt %q; want %q, %q", got["scope"], got["prompt"], c.want,
						c.prompt)
				}
			})
		})
	}
}

// Requirement: AUTHR-35, AUTHR-36
func TestStepUpRequestsUnionOfScopes(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.rs.wants = []string{"read"}
		tr := w.transport(nil)
		w.mustPost(tr)
		w.rs.set(func(r *fakeResource) { r.wants = []string{"write"} })
		w.mustPost(tr)
		if got := w.as.last.Get("scope"); got != "read write" || w.loginCount() != 2 {
			t.Errorf("requested %q in %d logins, want \"read write\" in 2", got, w.loginCount())
		}
		w.rs.set(func(r *fakeResource) { r.wants = []string{"admin", "read"} })
		w.mustPost(tr)
		if got := w.as.last.Get("scope"); got != "read write admin" {
			t.Errorf("requested %q, want \"read write admin\"", got)
		}
		s, _ := tr.Status(t.Context())
		if got := strings.Join(s.Scopes, " "); got != "read write admin" {
			t.Errorf("got granted scopes %q, want \"read write admin\"", got)
		}
	})
}

// The authorization server never grants the scope that the MCP server requires. The failed step-up
// is remembered, also in the store.
//
// Requirement: AUTHR-37, SEC-20
func TestStepUpWithoutEffectIsNotRepeated(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.as.grant = func(string) string { return "read" }
		w.rs.wants = []string{"read"}
		store := oauthclient.NewMemoryStore()
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		w.mustPost(tr)
		w.rs.set(func(r *fakeResource) { r.wants = []string{"write"} })
		for range 5 {
			_, _, err := post(tr, t.Context())
			stepUp, ok := errors.AsType[*oauthclient.StepUpError](err)
			if !ok || strings.Join(stepUp.Scopes, " ") != "write" || strings.Join(stepUp.Granted, " ") != "read" {
				t.Fatalf("got error %v, want a StepUpError for write", err)
			}
			if refused, ok := errors.AsType[*oauthclient.AuthorizeError](err); !ok ||
				refused.Status != http.StatusForbidden {
				t.Errorf("got error %v, want an AuthorizeError with status 403", err)
			}
		}
		if w.loginCount() != 2 {
			t.Errorf("got %d logins, want 2", w.loginCount())
		}
		if _, _, err := post(w.transport(&oauthclient.TransportOptions{Store: store}), t.Context()); err == nil ||
			w.loginCount() != 2 {
			t.Errorf("another transport: got error %v and %d logins, want an error and 2", err, w.loginCount())
		}
	})
}

// The server alternates between two scopes, neither of which is ever granted.
func TestAlternatingStepUpsWithoutEffect(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.as.grant = func(string) string { return "" }
		tr := w.transport(nil)
		w.mustPost(tr)
		for i := range 10 {
			w.rs.set(func(r *fakeResource) { r.wants = []string{"s" + string(rune('0'+i%2))} })
			if _, _, err := post(tr, t.Context()); err == nil {
				t.Error("got no error")
			}
		}
		if w.loginCount() != 3 {
			t.Errorf("got %d logins, want 3", w.loginCount())
		}
	})
}

func TestStepUpAtAnotherAuthorizationServer(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.rs.wants = []string{"read"}
		tr := w.transport(nil)
		w.mustPost(tr)
		other := w.newServer(otherIssuer)
		w.rs.document(otherIssuer, nil)
		w.rs.set(func(r *fakeResource) { r.wants, r.servers = []string{"write"}, append(r.servers, other) })
		w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
			w.rs.set(func(r *fakeResource) { r.as = other })
			return answer, nil
		})
		w.mustPost(tr)
		if got := other.last.Get("scope"); got != "write" {
			t.Errorf("requested %q at the new authorization server, want only \"write\"", got)
		}
	})
}

// A server that requires another scope in each response gets one step-up per request.
func TestStepUpLoopEnds(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		n := 0
		w.rs.wants = []string{"impossible"}
		w.as.grant = func(asked string) string { return strings.ReplaceAll(asked, "impossible", "") }
		w.rs.challenge = func(int, string) []string {
			n++
			return []string{`Bearer error="insufficient_scope", resource_metadata="` + w.rs.path + `", scope="s` +
				strings.Repeat("x", n) + `"`}
		}
		_, _, err := post(w.transport(nil), t.Context())
		if _, ok := errors.AsType[*oauthclient.AuthorizeError](err); !ok || w.loginCount() != 2 {
			t.Errorf("got error %v after %d logins, want an AuthorizeError after 2", err, w.loginCount())
		}
	})
}

func TestConcurrentStepUpsAreSerialized(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		w.rs.set(func(r *fakeResource) { r.byPath = true })
		done := make(chan error)
		for _, scope := range []string{"write", "admin", "write", "admin", "write"} {
			go func() {
				status, _, err := send(tr, t.Context(), clientMCP+"/"+scope)
				if err == nil && status != http.StatusOK {
					err = errors.New(http.StatusText(status))
				}
				done <- err
			}()
		}
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := strings.Fields(w.as.last.Get("scope")); len(got) != 2 || w.loginCount() != 3 {
			t.Errorf("requested %q in %d logins, want two scopes in 3", got, w.loginCount())
		}
	})
}

// The client id is a known one, a metadata document or a registration, in this order, and there is
// no login without one.
//
// Requirement: REG-01, REG-02
func TestClientKind(t *testing.T) {
	const documentURL = "https://client.example/id.json"
	known := oauthclient.Identity{ID: "mine", Issuer: clientIssuer}
	for name, c := range map[string]struct {
		client    oauthclient.Identity
		document  bool // supported by the authorization server
		registers bool
		want      string // the id; empty for an error
	}{
		"known beforehand": {known, true, true, "mine"}, // Requirement: REG-11
		"document": {oauthclient.Identity{MetadataURL: documentURL}, true, true, // Requirement: REG-03, REG-18
			documentURL},
		"document, not supported": {oauthclient.Identity{MetadataURL: documentURL}, false, true,
			"client-1-of-as.example"},
		// Requirement: AUTHR-28, AUTHR-29
		"registered":                 {oauthclient.Identity{}, true, true, "client-1-of-as.example"},
		"no way, document supported": {oauthclient.Identity{}, true, false, ""},
		"no way":                     {oauthclient.Identity{}, false, false, ""},
		"of another server": {oauthclient.Identity{ID: "mine", Issuer: otherIssuer}, true, // Requirement: REG-17
			true, ""},
		// Requirement: REG-17
		"issuer in another case": {oauthclient.Identity{ID: "mine", Issuer: "https://AS.example"},
			true, true, ""},
		"issuer not configured": {oauthclient.Identity{ID: "mine"}, true, true, ""}, // Requirement: REG-17
		// Requirement: REG-17
		"issuer not configured, allowed": {oauthclient.Identity{ID: "mine", InsecureAnyIssuer: true}, true,
			true, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.as.clients["mine"], w.as.clients[documentURL] = "", ""
				w.as.document["client_id_metadata_document_supported"] = c.document
				if !c.registers {
					delete(w.as.document, "registration_endpoint")
				}
				_, _, err := post(w.transport(&oauthclient.TransportOptions{Client: c.client}), t.Context())
				if (err == nil) != (c.want != "") || w.as.last.Get("client_id") != c.want {
					t.Errorf("got client id %q, error %v; want %q", w.as.last.Get("client_id"), err, c.want)
				}
				if n := w.as.count("register"); n > 0 && !strings.HasPrefix(c.want, "client-") {
					t.Error("the client registered, want no registration")
				}
				if c.want == "" && (w.loginCount() > 0 || w.as.count("authorization_code") > 0) {
					t.Error("the client logged in, want no login")
				}
			})
		})
	}
}

// The MCP server moves to another authorization server. The client is registered at the first.
//
// Requirement: REG-15, REG-17
func TestCredentialsAreNotUsedAtAnotherIssuer(t *testing.T) {
	for _, client := range []oauthclient.Identity{
		{ID: "mine", Secret: "s3cret", Issuer: clientIssuer}, {ID: "mine", Secret: "s3cret", InsecureAnyIssuer: true},
	} {
		withEnv(t, func(t *testing.T, w *testEnv) {
			w.as.clients["mine"], w.as.method = "s3cret", "client_secret_basic"
			w.as.document["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
			tr := w.transport(&oauthclient.TransportOptions{Client: client})
			w.mustPost(tr)
			other := w.newServer(otherIssuer)
			w.rs.moveTo(other)
			w.as.forgetAll()
			_, _, err := post(tr, t.Context())
			if wrong, ok := errors.AsType[*oauthclient.IssuerError](err); !ok || wrong.Want != clientIssuer ||
				wrong.Got != otherIssuer {
				t.Errorf("got error %v, want an IssuerError", err)
			}
			if other.count("authorization_code")+other.count("refresh_token")+other.count("register") > 0 ||
				w.loginCount() != 1 {
				t.Error("the client sent a request to the other authorization server")
			}
		})
	}
}

// Requirement: REG-14, AUTHR-24
func TestRegistrationsAreStoredByIssuer(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := oauthclient.NewMemoryStore()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		w.as.forgetAll()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		if n := w.as.count("register"); n != 1 {
			t.Errorf("got %d registrations at one authorization server, want 1", n)
		}
		// Another redirect URI has to be registered too.
		w.as.forgetAll()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store,
			Authorizer: plainAuthorizer{oauthclient.NewAuthorizer("http://127.0.0.1:7778/callback", w.login)}}))
		if n := w.as.count("register"); n != 1 {
			t.Errorf("got %d registrations for another redirect URI, want 1", n)
		}
	})
}

// A plainAuthorizer hides the optional methods of an Authorizer.
type plainAuthorizer struct{ oauthclient.Authorizer }

func TestForgottenClientRegistersAgain(t *testing.T) {
	for _, code := range []string{"invalid_client", "unauthorized_client"} {
		t.Run(code, func(t *testing.T) { testForgottenClient(t, code) })
	}
}

func testForgottenClient(t *testing.T, code string) {
	refusal := `{"error":"` + code + `"}`
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		w.as.forgetAll()
		first := maps.Clone(w.as.clients)
		w.as.set(func(s *fakeServer) {
			s.respond = func(form url.Values) (int, string) {
				if _, known := first[form.Get("client_id")]; known {
					return http.StatusUnauthorized, refusal
				}
				return 0, ""
			}
		})
		w.mustPost(tr)
		if n := w.as.count("register"); n != 2 {
			t.Errorf("got %d registrations, want 2", n)
		}
		// If the authorization server refuses every client, the client stops.
		w.as.forgetAll()
		w.as.set(func(s *fakeServer) {
			s.respond = func(url.Values) (int, string) { return http.StatusUnauthorized, refusal }
		})
		if _, _, err := post(tr, t.Context()); err == nil {
			t.Error("got no error")
		}
		if n := w.as.count("register"); n > 2 {
			t.Errorf("got %d registrations, want at most 2", n)
		}
	})
}

// An authorization server that has deleted the client shows an error page, and the login times out
// or the user cancels it.
func TestClientRegistersAgainAfterLoginWithoutResponse(t *testing.T) {
	for _, cause := range []error{oauthclient.ErrLoginTimeout, context.Canceled} {
		withEnv(t, func(t *testing.T, w *testEnv) {
			tr := w.transport(nil)
			w.changeResponse(func(*oauthclient.LoginRequest, url.Values) (url.Values, error) { return nil, cause })
			if err := tr.Login(t.Context()); !errors.Is(err, cause) {
				t.Errorf("got error %v, want %v", err, cause)
			}
			w.changeResponse(nil)
			if err := tr.Login(t.Context()); err != nil || w.as.count("register") != 2 {
				t.Errorf("got error %v, want success after a second registration", err)
			}
		})
	}
}
