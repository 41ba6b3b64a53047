package authserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func (w *env) tryRegister(body string, header ...string) response {
	w.t.Helper()
	header = append(header, "Content-Type", "application/json")
	return w.send(&http.Client{Transport: w.base}, w.request(http.MethodPost, "/register", body, header...))
}

func (w *env) register(body string) map[string]any {
	w.t.Helper()
	res := w.tryRegister(body)
	if res.StatusCode != http.StatusCreated {
		w.t.Fatalf("registration: %s %s, want 201", res.Status, res.body)
	}
	return res.json(w.t)
}

// registerPublic registers a client without authentication, and returns its ID.
func (w *env) registerPublic(redirectURIs ...string) string {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"redirect_uris": redirectURIs, "token_endpoint_auth_method": "none"})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.register(string(body))["client_id"].(string)
}

// Requirement: AUTHB-07, AUTHR-28, AUTHR-29
func TestClientsCanRegister(t *testing.T) {
	w := newEnv(t, nil)
	got := w.register(`{"client_name":"My App","redirect_uris":["http://localhost/cb","https://app.example/cb"],
		"grant_types":["refresh_token","authorization_code","implicit"],"response_types":["code"],
		"application_type":"native","token_endpoint_auth_method":"none","client_id":"chosen",
		"client_secret":"chosen","unknown":{"x":[1]}}`)
	text, _ := json.Marshal([]any{got["client_name"], got["redirect_uris"], got["grant_types"],
		got["token_endpoint_auth_method"], got["client_secret"]})
	const want = `["My App",["http://localhost/cb","https://app.example/cb"],` +
		`["authorization_code","refresh_token"],"none",null]`
	if string(text) != want {
		t.Errorf("registered %s, want the supported metadata of the request and no secret", text)
	}
	id := got["client_id"].(string)
	if id == "chosen" || len(id) < 22 {
		t.Errorf("client_id is %q, want one that the server chose", id)
	}
	code := w.code("client_id", id, "redirect_uri", "http://localhost:7/cb")
	tokens := w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id, "redirect_uri", "http://localhost:7/cb")))
	if tokens.Refresh == "" {
		t.Error("got no refresh token, want one")
	}

	// The defaults of RFC 7591: client_secret_basic, and no refresh token.
	got = w.register(`{"redirect_uris":["http://localhost/cb"]}`)
	id = got["client_id"].(string)
	if got["token_endpoint_auth_method"] != "client_secret_basic" || got["client_secret"] == "" ||
		got["client_secret_expires_at"] != 0.0 {
		t.Errorf("registered %v, want client_secret_basic and a secret that does not expire", got)
	}
	form := exchangeForm(w.code("client_id", id, "redirect_uri", "http://localhost:7/cb"), "client_id", id,
		"redirect_uri", "http://localhost:7/cb")
	w.post("/token", form).wantError(t, http.StatusUnauthorized, "invalid_client")
	form.Set("client_secret", got["client_secret"].(string))
	if tokens := w.tokensOf(w.post("/token", form)); tokens.Refresh != "" {
		t.Error("got a refresh token, want none without the grant type")
	}
	form.Set("grant_type", "client_credentials")
	w.post("/token", form).wantError(t, http.StatusBadRequest, "unauthorized_client")
}

// Requirement: AUTHB-09, AUTHB-15
func TestInvalidRegistrationsAreRefused(t *testing.T) {
	w := newEnv(t, nil)
	const redirect, metadata = "invalid_redirect_uri", "invalid_client_metadata"
	with := func(member string) string { return `{"redirect_uris":["http://localhost/cb"],` + member + `}` }
	uri := func(uri string) string {
		text, _ := json.Marshal(map[string]any{"redirect_uris": []string{uri}})
		return string(text)
	}
	for name, c := range map[string]struct{ body, code string }{
		"not an object":    {`[]`, metadata},
		"empty body":       {``, metadata},
		"null":             {`null`, metadata},
		"trailing data":    {with(`"x":1`) + "1", metadata},
		"member twice":     {with(`"redirect_uris":["https://evil.example"]`), metadata},
		"too deep":         {with(`"x":` + strings.Repeat("[", 20) + strings.Repeat("]", 20)), metadata},
		"bad UTF-8":        {with("\"client_name\":\"\xff\""), metadata},
		"wrong type":       {`{"redirect_uris":"http://localhost/cb"}`, metadata},
		"no redirect URIs": {`{}`, redirect},
		"empty list":       {`{"redirect_uris":[]}`, redirect},
		"21 redirect URIs": {`{"redirect_uris":["http://localhost/cb"` +
			strings.Repeat(`,"http://localhost/cb"`, 20) + `]}`, redirect},
		"http":               {uri("http://app.example/cb"), redirect},
		"fragment":           {uri("https://app.example/cb#x"), redirect},
		"user info":          {uri("https://u@app.example/cb"), redirect},
		"wildcard":           {uri("https://*.app.example/cb"), redirect},
		"javascript":         {uri("javascript:alert(1)"), redirect},
		"scheme without dot": {uri("myapp://cb"), redirect},
		"relative":           {uri("/cb"), redirect},
		"dot segments":       {uri("https://app.example/a/%2E./cb"), redirect},
		"code parameter":     {uri("https://app.example/cb?code=x"), redirect},
		"iss parameter":      {uri("https://app.example/cb?iss=x"), redirect},
		"space":              {uri("https://app.example/cb "), redirect},
		"long URI":           {uri("https://app.example/" + strings.Repeat("x", 2048)), redirect},
		"implicit response":  {with(`"response_types":["token"]`), metadata},
		"client credentials": {with(`"grant_types":["client_credentials"]`), metadata},
		"keys at a private address": {with(`"token_endpoint_auth_method":"private_key_jwt",` +
			`"jwks_uri":"http://169.254.169.254/"`), metadata},
		"application type":            {with(`"application_type":"toaster"`), metadata},
		"control character in name":   {with(`"client_name":"a\u0007b"`), metadata},
		"direction mark in name":      {with(`"client_name":"a\u202eb"`), metadata},
		"invisible character in name": {with(`"client_name":"a\u200bb"`), metadata},
		"long name":                   {with(`"client_name":"` + strings.Repeat("x", 201) + `"`), metadata},
		"script as client_uri":        {with(`"client_uri":"javascript:alert(1)"`), metadata},
		"logo over http":              {with(`"logo_uri":"http://app.example/x.png"`), metadata},
		"scope":                       {with(`"scope":"a\"b"`), metadata},
	} {
		t.Run(name, func(t *testing.T) { w.tryRegister(c.body).wantError(t, http.StatusBadRequest, c.code) })
	}
	text := w.send(http.DefaultClient, w.request(http.MethodPost, "/register", with(`"x":1`), "Content-Type",
		"text/plain"))
	text.wantError(t, http.StatusBadRequest, metadata)
	w.tryRegister(with(`"x":"`+strings.Repeat("x", 64<<10)+`"`)).wantError(t, http.StatusRequestEntityTooLarge,
		"invalid_request")
}

func TestRegistrationCanBeRestricted(t *testing.T) {
	const body = `{"redirect_uris":["http://localhost/cb"],"token_endpoint_auth_method":"none"}`
	off := newEnv(t, func(o *authserver.Options) { o.Registration.Disabled = true })
	if res := off.tryRegister(body); res.StatusCode != http.StatusNotFound ||
		off.server.Metadata().RegistrationEndpoint != "" {
		t.Errorf("registration disabled: %s, want 404 and no endpoint in the metadata", res.Status)
	}
	w := newEnv(t, func(o *authserver.Options) { o.Registration.TokenHash = secretHash })
	w.tryRegister(body).wantError(t, http.StatusUnauthorized, "invalid_token")
	w.tryRegister(body, "Authorization", "Bearer wrong").wantError(t, http.StatusUnauthorized, "invalid_token")
	if res := w.tryRegister(body, "Authorization", "Bearer "+secret); res.StatusCode != http.StatusCreated {
		t.Errorf("with the initial access token: %s, want 201", res.Status)
	}
}

func TestUnusedRegistrationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = `{"redirect_uris":["http://localhost/cb"],"token_endpoint_auth_method":"none"}`
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Limits.Registrations = authserver.Rate{} })
		for i := range 20 {
			if res := w.tryRegister(body); res.StatusCode != http.StatusCreated {
				t.Fatalf("registration %d: %s, want 201", i+1, res.Status)
			}
		}
		res := w.tryRegister(body)
		if res.wantError(t, http.StatusTooManyRequests, "slow_down"); res.Header.Get("Retry-After") == "" {
			t.Error("the refusal has no Retry-After")
		}

		few := newInProcessEnv(t, func(o *authserver.Options) { o.Registration.MaxUnused = 3 })
		used := few.register(body)["client_id"].(string)
		few.register(body)
		evicted := few.register(body)["client_id"].(string)
		uri := "http://localhost:9/cb"
		code := few.code("client_id", used, "redirect_uri", uri)
		few.tokensOf(few.post("/token", exchangeForm(code, "client_id", used, "redirect_uri", uri)))
		few.register(body) // used no longer counts
		few.register(body)
		few.register(body)
		res = few.browser().get("/authorize?" + authorizeQuery("client_id", evicted, "redirect_uri", uri).Encode())
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("unused client after three more: %s, want 400", res.Status)
		}
		time.Sleep(24 * time.Hour)
		for range 3 {
			few.register(body) // the unused clients have expired
		}
		few.code("client_id", used, "redirect_uri", uri) // used has not
		time.Sleep(364 * 24 * time.Hour)
		res = few.browser().get("/authorize?" + authorizeQuery("client_id", used, "redirect_uri", uri).Encode())
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("client unused for a year: %s, want 400", res.Status)
		}
	})
}

// A few hundred addresses register as many clients as the limit by address permits.
func TestStrangersDoNotBlockRegistration(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	store := authserver.NewMemoryStore()
	w := newInProcessEnv(t, func(o *authserver.Options) {
		o.Store, o.Limits.Registrations = store, authserver.Rate{}
	})
	early := w.registerPublic(publicURI)
	for i := range 600 {
		stranger := w.from(fmt.Sprintf("10.%d.%d.1", i/250, i%250))
		for range 20 {
			stranger.registerPublic(publicURI)
		}
	}
	late := w.registerPublic(publicURI)
	for when, id := range map[string]string{"before": early, "after": late} {
		w.tokensOf(w.post("/token", exchangeForm(w.code("client_id", id), "client_id", id)))
		if value, err := store.Get(t.Context(), "client", id); value == nil || err != nil {
			t.Errorf("client registered %s the others: %q, %v; want its record", when, value, err)
		}
	}
	if n := authserver.MemoryRecords(store, "new-client"); n > 10_000 {
		t.Errorf("%d unused clients; want at most 10000", n)
	}
}

func TestRegistrationRecordIsBounded(t *testing.T) {
	store := authserver.NewMemoryStore()
	w := newInProcessEnv(t, func(o *authserver.Options) { o.Store = store })
	long := func(n int) string { return "https://app.example/" + strings.Repeat("x", n-20) }
	for name, c := range map[string]struct {
		uris   []string
		logo   string
		status int
		code   string
	}{
		"redirect URIs of 4 KiB":          {[]string{long(2048), long(2048)}, "", http.StatusCreated, ""},
		"redirect URIs of 4 KiB + 1 byte": {[]string{long(2048), long(2000), long(49)}, "", 400, "invalid_redirect_uri"},
		"record of more than 8 KiB":       {[]string{long(2048), long(2048)}, long(2048), 400, "invalid_client_metadata"},
	} {
		body, err := json.Marshal(map[string]any{"redirect_uris": c.uris, "logo_uri": c.logo, "client_uri": c.logo,
			"policy_uri": c.logo, "token_endpoint_auth_method": "none"})
		if err != nil {
			t.Fatal(err)
		}
		res := w.tryRegister(string(body))
		if got, _ := res.json(t)["error"].(string); res.StatusCode != c.status || got != c.code {
			t.Errorf("%s: %s %s, want %d %s", name, res.Status, res.body, c.status, c.code)
		}
	}
}

// Requirement: REG-10
func TestConsentPageShowsTheRedirectHost(t *testing.T) {
	w := newEnv(t, nil)
	configured, _ := w.browser().consentPage(authorizeQuery())
	id := w.register(`{"client_name":"<b>Bank</b>","redirect_uris":["https://app.example/cb"],
		"token_endpoint_auth_method":"none"}`)["client_id"].(string)
	registered, _ := w.browser().consentPage(authorizeQuery("client_id", id, "redirect_uri", "https://app.example/cb"))
	if strings.Contains(registered.body, "<b>Bank") || !strings.Contains(registered.body, "&lt;b&gt;Bank") ||
		!strings.Contains(registered.body, "app.example") {
		t.Errorf("page is %s, want the escaped name and the redirect host", registered.body)
	}
	if !strings.Contains(configured.body, "Read your calendar") || !strings.Contains(configured.body, "Calendar") {
		t.Errorf("page is %s, want the resource and its scope", configured.body)
	}
	for _, page := range []response{configured, registered} {
		if csp := page.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("Content-Security-Policy is %q, want frame-ancestors 'none'", csp)
		}
	}
}

// A hookStore calls before, once, before it reads a newly registered client.
type hookStore struct {
	authserver.Store
	before func()
}

func (m *hookStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if before := m.before; before != nil && kind == "new-client" {
		m.before = nil
		before()
	}
	return m.Store.Get(ctx, kind, key)
}

// The first token of a registered client moves its record from the kind of the unused clients.
func TestClientIsKnownDuringItsFirstExchange(t *testing.T) {
	store := &hookStore{Store: authserver.NewMemoryStore()}
	w := newEnv(t, func(o *authserver.Options) { o.Store = store })
	id := w.registerPublic("http://127.0.0.1/cb")
	code := w.code("client_id", id, "redirect_uri", "http://127.0.0.1/cb")
	store.before = func() {
		w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id, "redirect_uri", "http://127.0.0.1/cb")))
	}
	res := w.browser().get("/authorize?" + authorizeQuery("client_id", id, "redirect_uri",
		"http://127.0.0.1/cb").Encode())
	if store.before != nil || res.StatusCode != http.StatusSeeOther {
		t.Errorf("authorization request during the exchange: %s, want 303", res.Status)
	}
}
