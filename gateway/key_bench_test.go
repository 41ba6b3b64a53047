package gateway_test

import (
	"net/http"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// BenchmarkCall compares a call with the key of the local user with calls with keys of principals.
func BenchmarkCall(b *testing.B) {
	store := gateway.NewKeyStore(&state.Memory{})
	g := gateway.New((&upstreams{}).newHost(b, twoServers), &gateway.Options{Keys: []string{key}, KeyStore: store})
	h := g.Handler()
	for name, k := range map[string]*gateway.Key{"local": nil, "principal": {Name: "ann"},
		"limited": {Name: "build", Servers: []string{"one"}}} {
		secret := key
		if k != nil {
			var err error
			if secret, err = store.Create(b.Context(), *k); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := sendFrom(h, "10.0.0.1:1", "POST", "/mcp", callWhoami, "Authorization", "Bearer "+secret,
					"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "one__whoami")
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}

const callWhoami = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__whoami","arguments":{},"_meta":` +
	`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
