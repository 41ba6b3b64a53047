package authserver_test

import (
	"context"
	"encoding/json"
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
		w.t.Fatalf("register: %s %s", res.Status, res.body)
	}
	return res.json(w.t)
}

func TestRegistration(t *testing.T) {
	w := newEnv(t, nil)
	got := w.register(`{"client_name":"My App","redirect_uris":["http://localhost/cb","https://app.example/cb"],
		"grant_types":["refresh_token","authorization_code","implicit"],"response_types":["code"],"application_type":"native",
		"token_endpoint_auth_method":"none","client_id":"chosen","client_secret":"chosen","unknown":{"x":[1]}}`)
	text, _ := json.Marshal([]any{got["client_name"], got["redirect_uris"], got["grant_types"],
		got["token_endpoint_auth_method"], got["client_secret"]})
	if string(text) != `["My App",["http://localhost/cb","https://app.example/cb"],["authorization_code","refresh_token"],"none",null]` {
		t.Errorf("registered %s", text)
	}
	id := got["client_id"].(string)
	if id == "chosen" || len(id) < 22 {
		t.Errorf("id is %q", id)
	}
	code := w.code("client_id", id, "redirect_uri", "http://localhost:7/cb")
	tokens := w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id, "redirect_uri", "http://localhost:7/cb")))
	if tokens.Refresh == "" {
		t.Error("no refresh token")
	}

	// The defaults of RFC 7591: a secret in the header, and no refresh token.
	got = w.register(`{"redirect_uris":["http://localhost/cb"]}`)
	id = got["client_id"].(string)
	if got["token_endpoint_auth_method"] != "client_secret_basic" || got["client_secret"] == "" ||
		got["client_secret_expires_at"] != 0.0 {
		t.Errorf("registered %v", got)
	}
	form := exchangeForm(w.code("client_id", id, "redirect_uri", "http://localhost:7/cb"), "client_id", id,
		"redirect_uri", "http://localhost:7/cb")
	w.post("/token", form).wantError(t, http.StatusUnauthorized, "invalid_client")
	form.Set("client_secret", got["client_secret"].(string))
	if tokens := w.tokensOf(w.post("/token", form)); tokens.Refresh != "" {
		t.Error("a refresh token that nobody asked for")
	}
	form.Set("grant_type", "client_credentials")
	w.post("/token", form).wantError(t, http.StatusBadRequest, "unauthorized_client")
}

func TestRefusedRegistrations(t *testing.T) {
	w := newEnv(t, nil)
	const redirect, metadata = "invalid_redirect_uri", "invalid_client_metadata"
	with := func(member string) string { return `{"redirect_uris":["http://localhost/cb"],` + member + `}` }
	uri := func(uri string) string {
		text, _ := json.Marshal(map[string]any{"redirect_uris": []string{uri}})
		return string(text)
	}
	for name, c := range map[string]struct{ body, code string }{
		"no object":        {`[]`, metadata},
		"nothing":          {``, metadata},
		"null":             {`null`, metadata},
		"trailing":         {with(`"x":1`) + "1", metadata},
		"member twice":     {with(`"redirect_uris":["https://evil.example"]`), metadata},
		"too deep":         {with(`"x":` + strings.Repeat("[", 20) + strings.Repeat("]", 20)), metadata},
		"bad UTF-8":        {with("\"client_name\":\"\xff\""), metadata},
		"wrong type":       {`{"redirect_uris":"http://localhost/cb"}`, metadata},
		"no redirect URIs": {`{}`, redirect},
		"empty":            {`{"redirect_uris":[]}`, redirect},
		"many": {`{"redirect_uris":[` + strings.Repeat(`"http://localhost/cb",`,
			20) + `"http://localhost/cb"]}`, redirect},
		"http":               {uri("http://app.example/cb"), redirect},
		"fragment":           {uri("https://app.example/cb#x"), redirect},
		"user":               {uri("https://u@app.example/cb"), redirect},
		"wildcard":           {uri("https://*.app.example/cb"), redirect},
		"javascript":         {uri("javascript:alert(1)"), redirect},
		"scheme without dot": {uri("myapp://cb"), redirect},
		"relative":           {uri("/cb"), redirect},
		"up":                 {uri("https://app.example/a/%2E./cb"), redirect},
		"has a code":         {uri("https://app.example/cb?code=x"), redirect},
		"has an iss":         {uri("https://app.example/cb?iss=x"), redirect},
		"space":              {uri("https://app.example/cb "), redirect},
		"long URI":           {uri("https://app.example/" + strings.Repeat("x", 2048)), redirect},
		"token":              {with(`"response_types":["token"]`), metadata},
		"machine":            {with(`"grant_types":["client_credentials"]`), metadata},
		"assertion": {with(`"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"http://169.254.169.254/"`),
			metadata},
		"type":              {with(`"application_type":"toaster"`), metadata},
		"control in name":   {with(`"client_name":"a\u0007b"`), metadata},
		"direction in name": {with(`"client_name":"a\u202eb"`), metadata},
		"invisible in name": {with(`"client_name":"a\u200bb"`), metadata},
		"long name":         {with(`"client_name":"` + strings.Repeat("x", 201) + `"`), metadata},
		"script as home":    {with(`"client_uri":"javascript:alert(1)"`), metadata},
		"logo over http":    {with(`"logo_uri":"http://app.example/x.png"`), metadata},
		"scope":             {with(`"scope":"a\"b"`), metadata},
	} {
		t.Run(name, func(t *testing.T) { w.tryRegister(c.body).wantError(t, http.StatusBadRequest, c.code) })
	}
	form := w.send(http.DefaultClient, w.request(http.MethodPost, "/register", with(`"x":1`), "Content-Type",
		"text/plain"))
	form.wantError(t, http.StatusBadRequest, metadata)
	w.tryRegister(with(`"x":"`+strings.Repeat("x", 64<<10)+`"`)).wantError(t, http.StatusRequestEntityTooLarge,
		"invalid_request")
}

func TestRegistrationPolicy(t *testing.T) {
	const body = `{"redirect_uris":["http://localhost/cb"],"token_endpoint_auth_method":"none"}`
	off := newEnv(t, func(o *authserver.Options) { o.Registration.Disabled = true })
	if res := off.tryRegister(body); res.StatusCode != http.StatusNotFound ||
		off.server.Metadata().RegistrationEndpoint != "" {
		t.Errorf("disabled: %s", res.Status)
	}
	w := newEnv(t, func(o *authserver.Options) { o.Registration.TokenHash = secretHash })
	w.tryRegister(body).wantError(t, http.StatusUnauthorized, "invalid_token")
	w.tryRegister(body, "Authorization", "Bearer wrong").wantError(t, http.StatusUnauthorized, "invalid_token")
	if res := w.tryRegister(body, "Authorization", "Bearer "+secret); res.StatusCode != http.StatusCreated {
		t.Errorf("with the token: %s", res.Status)
	}
}

func TestUnusedRegistrationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = `{"redirect_uris":["http://localhost/cb"],"token_endpoint_auth_method":"none"}`
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Limits.Registrations = authserver.Rate{} })
		for i := range 20 {
			if res := w.tryRegister(body); res.StatusCode != http.StatusCreated {
				t.Fatalf("%d: %s", i, res.Status)
			}
		}
		res := w.tryRegister(body)
		if res.wantError(t, http.StatusTooManyRequests, "slow_down"); res.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}

		few := newInProcessEnv(t, func(o *authserver.Options) { o.Registration.MaxUnused = 3 })
		used := few.register(body)["client_id"].(string)
		few.register(body)
		few.register(body)
		few.tryRegister(body).wantError(t, http.StatusTooManyRequests, "slow_down")
		uri := "http://localhost:9/cb"
		code := few.code("client_id", used, "redirect_uri", uri)
		few.tokensOf(few.post("/token", exchangeForm(code, "client_id", used, "redirect_uri", uri)))
		few.register(body) // one is no longer unused
		time.Sleep(24 * time.Hour)
		for range 3 {
			few.register(body) // the unused ones are gone
		}
		few.code("client_id", used, "redirect_uri", uri) // the used one is not
		time.Sleep(364 * 24 * time.Hour)
		if res := few.browser().get("/authorize?" + authorizeQuery("client_id", used, "redirect_uri",
			uri).Encode()); res.StatusCode != http.StatusBadRequest {
			t.Errorf("not used for a year: %s", res.Status)
		}
	})
}

// REG-10: users see what is verified.
func TestConsentPageShowsTheClientOrigin(t *testing.T) {
	w := newEnv(t, nil)
	known, _ := w.browser().consentPage(authorizeQuery())
	id := w.register(`{"client_name":"<b>Bank</b>","redirect_uris":["https://app.example/cb"],"token_endpoint_auth_method":"none"}`)["client_id"].(string)
	itself, _ := w.browser().consentPage(authorizeQuery("client_id", id, "redirect_uri", "https://app.example/cb"))
	if strings.Contains(itself.body, "<b>Bank") || !strings.Contains(itself.body, "&lt;b&gt;Bank") ||
		!strings.Contains(itself.body, "app.example") {
		t.Errorf("page: %s", itself.body)
	}
	if !strings.Contains(known.body, "Read your calendar") || !strings.Contains(known.body, "Calendar") {
		t.Errorf("page: %s", known.body)
	}
	for _, page := range []response{known, itself} {
		if csp := page.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("CSP is %q", csp)
		}
	}
}

// A hookStore does something just before it is asked for a client that is new.
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

// A registered client is at no time unknown, also while its first token makes it a used one.
func TestClientIsKnownDuringItsFirstExchange(t *testing.T) {
	store := &hookStore{Store: authserver.NewMemoryStore()}
	w := newEnv(t, func(o *authserver.Options) { o.Store = store })
	id, _ := w.register(`{"redirect_uris":["http://127.0.0.1/cb"],"token_endpoint_auth_method":"none"}`)["client_id"].(string)
	code := w.code("client_id", id, "redirect_uri", "http://127.0.0.1/cb")
	store.before = func() {
		w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id, "redirect_uri", "http://127.0.0.1/cb")))
	}
	res := w.browser().get("/authorize?" + authorizeQuery("client_id", id, "redirect_uri",
		"http://127.0.0.1/cb").Encode())
	if store.before != nil || res.StatusCode != http.StatusSeeOther {
		t.Errorf("a request meanwhile: %s", res.Status)
	}
}
