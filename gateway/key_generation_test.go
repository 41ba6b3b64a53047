package gateway_test

import (
	"net/http"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A new key with the name of a revoked key does not get the logins of the former holder. Keys of one principal that
// exist at the same time share its logins.
func TestKeyNameThatIsUsedAgainInheritsNothing(t *testing.T) {
	u := newProtectedUpstream(t)
	keys := gateway.NewKeyStore(&state.Memory{})
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", func(o *gateway.Options) { o.KeyStore = keys })
	ann := g.visitor(t, "ann@notes")
	connect := func(secret string, elicit bool) *mcp.Client {
		o := &mcp.ClientOptions{}
		if elicit {
			o.ElicitURL = ann.elicit
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(g.url+"/mcp/s/notes", &mcphttp.TransportOptions{
			Client: &http.Client{Transport: transport}, Header: http.Header{"Authorization": {"Bearer " + secret}}}), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := newKey(t, keys, gateway.Key{Name: "ann"})
	call(t, connect(first, true), "log_in")
	second := newKey(t, keys, gateway.Key{Name: "ann-laptop", Subject: "ann"})
	if text, isError := call(t, connect(second, false), "whoami"); isError || text != "ann@notes" {
		t.Errorf("another key of ann: %q, %t, want the login", text, isError)
	}
	if _, err := keys.Revoke(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	if text, isError := call(t, connect(second, false), "whoami"); isError || text != "ann@notes" {
		t.Errorf("the key that is left: %q, %t, want the login", text, isError)
	}
	if _, err := keys.Revoke(t.Context(), "ann-laptop"); err != nil {
		t.Fatal(err)
	}
	again := connect(newKey(t, keys, gateway.Key{Name: "ann"}), false)
	if code, text := errorCode(t, again, "whoami"); code != "auth_required" {
		t.Errorf("a new key with the name: %q, %q, want auth_required", code, text)
	}
	if u.calls("ann@notes") != 2 {
		t.Errorf("%d calls, want those of the former keys", u.calls("ann@notes"))
	}
}
