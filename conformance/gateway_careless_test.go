package conformance_test

import (
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestGatewayBeforeACarelessServer sends calls to a gateway that mcp-go would understand differently than
// their exact names say: as a call of a tool that the policy denies, or with arguments that the policy denies
// or the gateway hides.
func TestGatewayBeforeACarelessServer(t *testing.T) {
	peer := build(t, ".", "./peers/mcpgo")
	address := startPeer(t, exec.Command(peer, "-careless", "-addr", "127.0.0.1:0"))
	url := serveConfig(t, build(t, "..", "./gateway/cmd/patchbay"), map[string]any{
		"mcpServers": map[string]any{
			"a": map[string]any{"command": peer, "args": []string{"-careless"}},
			"b": map[string]any{"type": "http", "url": address + "/session"},
		},
		"patchbay": map[string]any{
			"servers": map[string]any{"a": map[string]any{"hideArgs": map[string]any{"read": []string{"secret"}}}},
			"policy": map[string]any{"default": "allow", "rules": []any{
				map[string]any{"on": []string{"call"}, "when": "tool.name == 'admin'", "do": "deny"},
				map[string]any{"on": []string{"call"}, "when": "args.path.startsWith('/etc')", "do": "deny"},
			}},
		},
	})
	call := func(method, params string) string {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":` +
			`"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},` + params + `}}`
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}}
		if _, name, ok := strings.Cut(params, `"name":"`); ok && method == "tools/call" {
			req.Header.Set("Mcp-Name", name[:strings.IndexByte(name, '"')])
		}
		res := must(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		return string(must(io.ReadAll(res.Body))(t))
	}
	for _, server := range []string{"a", "b"} {
		if got := call("tools/call", `"name":"`+server+`__read","arguments":{"path":"/tmp"}`); !strings.Contains(got, "ran read /tmp") {
			t.Fatalf("server %s: got %s", server, got)
		}
		for params, refused := range map[string]string{
			`"name":"NAME__admin","arguments":{"path":"/tmp"}`:                                           "denied",
			`"name":"NAME__read","arguments":{"path":"/etc"}`:                                            "denied",
			`"name":"NAME__read","Name":"admin","arguments":{"path":"/tmp"}`:                             "-32602",
			`"name":"NAME__read","Name":"admin","arguments":{"path":"/tmp"},"Arguments":{"path":"/etc"}`: "-32602",
			`"name":"NAME__read","arguments":{"path":"/tmp"},"Arguments":{"path":"/etc"}`:                "-32602",
			`"name":"NAME__read","arguments":{"path":"/tmp"},"argument\u017f":{"path":"/etc"}`:           "-32602",
			`"name":"NAME__read","arguments":{"path":"/tmp","Path":"/etc"}`:                              "-32602",
			`"name":"NAME__read","arguments":{"path":"/tmp","Secret":"x"}`:                               "-32602",
			`"name":"NAME__read","arguments":"x"`:                                                        "-32602",
		} {
			params = strings.ReplaceAll(params, "NAME", server)
			if got := call("tools/call", params); !strings.Contains(got, refused) || strings.Contains(got, "ran ") {
				t.Errorf("%s: got %s, want %s", params, got, refused)
			}
		}
		if got := call("Tools/call", `"name":"`+server+`__admin","arguments":{"path":"/etc"}`); !strings.Contains(got, "-32601") {
			t.Errorf("Tools/call: got %s, want an unknown method", got)
		}
	}
}
