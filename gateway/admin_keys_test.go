package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newKeysAdmin is newAdmin for a gateway with a store of keys.
func newKeysAdmin(t *testing.T) (*adminTest, *gateway.KeyStore) {
	t.Helper()
	store := gateway.NewKeyStore(&state.Memory{})
	return newAdminWith(t, twoServers, nil, gateway.Options{KeyStore: store}), store
}

type shownKey struct {
	Name, Subject, Profile string
	Servers, Only          []string
	ReadOnly               bool
	Expires                time.Time
}

func TestAdminKeys(t *testing.T) {
	a, store := newKeysAdmin(t)
	var page struct{ Keys []shownKey }
	a.get("GET", "/keys", "", &page)
	if page.Keys == nil || len(page.Keys) != 0 {
		t.Errorf("without keys: got %+v", page)
	}
	var made struct{ Name, Secret string }
	a.get("POST", "/keys", `{"name":"build","subject":"ci","servers":["one"],"only":["call","read"],
		"readOnly":true,"expires":"2030-01-02T03:04:05Z"}`, &made)
	if !strings.HasPrefix(made.Secret, gateway.KeyPrefix) || made.Name != "build" {
		t.Fatalf("created %+v", made)
	}
	a.get("GET", "/keys", "", &page)
	if len(page.Keys) != 1 || page.Keys[0].Name != "build" || page.Keys[0].Subject != "ci" || !page.Keys[0].ReadOnly ||
		len(page.Keys[0].Servers) != 1 || len(page.Keys[0].Only) != 2 || page.Keys[0].Expires.Year() != 2030 {
		t.Errorf("keys %+v", page)
	}
	_, list := a.send("GET", "/keys", "")
	for _, text := range []string{string(list), string(a.lastAdmin().Detail)} {
		if strings.Contains(text, made.Secret) || strings.Contains(text, "hash") {
			t.Errorf("the secret of a key is readable: %s", text)
		}
	}
	if detail := string(a.lastAdmin().Detail); !strings.Contains(detail, `"name":"build"`) ||
		!strings.Contains(detail, `"servers":["one"]`) {
		t.Errorf("record %s, want the key and its limits", detail)
	}
	a.refused("POST", "/keys", `{"name":"build"}`, http.StatusConflict, "key_exists")
	for _, body := range []string{`{"name":"a b"}`, `{"name":"x","only":["all"]}`, `{"name":"x","servers":["none"]}`,
		`{"name":"x","profile":"none"}`, `{"name":"x","expires":"2020-01-02T03:04:05Z"}`} {
		a.refused("POST", "/keys", body, http.StatusBadRequest, "invalid_parameter")
	}
	a.get("POST", "/keys/build:revoke", "", &struct{}{})
	a.refused("POST", "/keys/build:revoke", "", http.StatusNotFound, "unknown_key")
	if all, err := store.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after revocation: %+v, %v", all, err)
	}
}

func TestAdminKeyRecordsNameTheirPrincipal(t *testing.T) {
	a, store := newKeysAdmin(t)
	if _, err := store.Create(t.Context(), gateway.Key{Name: "build"}); err != nil {
		t.Fatal(err)
	}
	status, text := sendInProcess(t, a.gateway.AdminClient(&mcp.Principal{Subject: "ann"}), http.MethodPost,
		"/keys/build:revoke")
	if r := a.lastAdmin(); status != http.StatusOK || r.Caller == nil || r.Caller.Principal.Subject != "ann" ||
		!strings.Contains(string(r.Detail), "/keys/build:revoke") {
		t.Errorf("got %d %s, record %+v, %s", status, text, r, r.Detail)
	}
}

// A person of a console creates keys that grant no more than the person may use, but decides neither who uses the
// console nor acts as another such person.
func TestAdminClientOfPrincipalGrantsNoConsole(t *testing.T) {
	a, store := newKeysAdmin(t)
	person := func(k gateway.Key) *mcp.Principal {
		k.Console = gateway.ConsoleOperator
		secret, err := store.Create(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		user, err := a.gateway.ConsoleUser(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), secret)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := user.Check()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	ann := person(gateway.Key{Name: "ann"})
	person(gateway.Key{Name: "bob"})
	eve := person(gateway.Key{Name: "eve", Servers: []string{"one"}, ReadOnly: true})
	stranger := &mcp.Principal{Issuer: "https://idp.example", Subject: "ann"}
	for i, c := range []struct {
		p    *mcp.Principal
		key  string
		want string // a part of the refusal
	}{
		{ann, `"console":"operator"`, "console_key"}, {ann, `"console":"viewer"`, "console_key"},
		{ann, `"subject":"bob"`, "console_key"}, {stranger, `"subject":"ann"`, "console_key"},
		{ann, `"subject":"ann"`, ""}, {ann, `"subject":"ci"`, ""}, {nil, `"console":"operator","subject":"bob"`, ""},
		{eve, `"servers":["one"],"readOnly":true`, ""}, {eve, `"servers":["one"]`, "wider_key"},
		{eve, `"readOnly":true`, "wider_key"}, {eve, `"servers":["one","two"],"readOnly":true`, "wider_key"},
		{eve, `"servers":["one"],"readOnly":true,"only":["call"]`, ""},
	} {
		body := strings.NewReader(fmt.Sprintf(`{"name":"k%d",%s}`, i, c.key))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, adminBase+"/keys", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := a.gateway.AdminClient(c.p).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		isRefused := res.StatusCode == http.StatusForbidden && strings.Contains(string(text), c.want)
		if err != nil || c.want == "" && res.StatusCode != http.StatusOK || c.want != "" && !isRefused {
			t.Errorf("%v creates %s: got %d, %s, %v", c.p, c.key, res.StatusCode, text, err)
		}
	}
}

// A person revokes own keys and narrower keys, and no key that the person could not create.
func TestAdminKeysOfOthersAreNotRevoked(t *testing.T) {
	a, store := newKeysAdmin(t)
	for _, k := range []gateway.Key{{Name: "ann", Console: gateway.ConsoleOperator}, {Name: "wide"},
		{Name: "bob", Console: gateway.ConsoleViewer, Servers: []string{"one"}},
		{Name: "own", Subject: "eve", Console: gateway.ConsoleOperator, Servers: []string{"one"}},
		{Name: "narrow", Servers: []string{"one"}, ReadOnly: true}} {
		if _, err := store.Create(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	secret, err := store.Create(t.Context(), gateway.Key{Name: "eve", Servers: []string{"one"},
		Console: gateway.ConsoleOperator})
	if err != nil {
		t.Fatal(err)
	}
	user, err := a.gateway.ConsoleUser(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), secret)
	if err != nil {
		t.Fatal(err)
	}
	eve, _, err := user.Check()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"ann": 403, "wide": 403, "bob": 403, "own": 200,
		"narrow": 200, "none": 404} {
		status, text := sendInProcess(t, a.gateway.AdminClient(eve), http.MethodPost, "/keys/"+name+":revoke")
		if status != want || want == 403 && !strings.Contains(text, "wider_key") {
			t.Errorf("eve revokes %s: got %d, %s, want %d", name, status, text, want)
		}
	}
	a.get("POST", "/keys/ann:revoke", "", &struct{}{}) // the local user
}

func TestAdminWithoutKeyStore(t *testing.T) {
	a := newAdmin(t, adminConfig, nil)
	a.refused("GET", "/keys", "", http.StatusNotImplemented, "unsupported")
	a.refused("POST", "/keys", `{"name":"x"}`, http.StatusNotImplemented, "unsupported")
}

// lastAdmin returns the last record of an action of an operator.
func (a *adminTest) lastAdmin() *event.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.records) - 1; i >= 0; i-- {
		if a.records[i].Event == event.Admin {
			return &a.records[i]
		}
	}
	return &event.Record{}
}
