package gateway_test

import (
	"fmt"
	"io"
	"net/http"
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

// A person of a console creates keys, but decides neither who uses the console nor acts as another such person.
func TestAdminClientOfPrincipalGrantsNoConsole(t *testing.T) {
	a, store := newKeysAdmin(t)
	for _, name := range []string{"ann", "bob"} {
		if _, err := store.Create(t.Context(), gateway.Key{Name: name, Console: "operator"}); err != nil {
			t.Fatal(err)
		}
	}
	ann := &mcp.Principal{Issuer: gateway.KeyIssuer, Subject: "ann"}
	stranger := &mcp.Principal{Issuer: "https://idp.example", Subject: "ann"}
	for i, c := range []struct {
		p    *mcp.Principal
		key  string
		want int
	}{
		{ann, `"console":"operator"`, 403}, {ann, `"console":"viewer"`, 403}, {ann, `"subject":"bob"`, 403},
		{stranger, `"subject":"ann"`, 403}, {ann, `"subject":"ann"`, 200}, {ann, `"subject":"ci"`, 200},
		{nil, `"console":"operator","subject":"bob"`, 200},
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
		if err != nil || res.StatusCode != c.want ||
			c.want == 403 && !strings.Contains(string(text), "--console operator") {
			t.Errorf("%v creates %s: got %d, %s, %v", c.p, c.key, res.StatusCode, text, err)
		}
	}
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
