package explore

import (
	"cmp"
	"encoding/base64"
	stdjson "encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Target tells how another program reaches a server.
type Target struct {
	Name    string   // of the server in the configuration files; "" for a server of the command line
	URL     string   // of a server over HTTP, without secrets
	Command []string // of a server that is a process, without secrets
}

// A copied is a request as another program sends it.
type copied struct{ Title, Text string }

// copyAs returns a run as a command line of patchbay, as command lines of curl for the revision of
// the run, and as a program in Go. Secrets are variables.
func copyAs(t *Target, r *run, revision string) []copied {
	all := []copied{{"Command line", patchbayLine(t, r)}}
	if t.URL != "" {
		all = append(all, copied{"curl", curlLines(t, r, revision)})
	}
	return append(all, copied{"Go", goProgram(t, r)})
}

func patchbayLine(t *Target, r *run) string {
	words := []string{"patchbay", "call"}
	switch r.Item.Kind {
	case kindPrompts:
		words[1] = "get"
	case kindResources, kindTemplates:
		words[1] = "read"
	}
	if to := cmp.Or(t.Name, t.URL); to != "" {
		words = append(words, term.ShellWord(to))
	}
	if r.Item.Kind == kindMethods {
		words[1] = "rpc"
		words = append(words, term.ShellWord(r.Item.Name), term.ShellWord(string(r.Input)))
	} else {
		words = append(words, term.ShellWord(r.Item.target(r.Input)))
	}
	if r.Item.takesArguments() {
		words = append(words, term.ShellWord(string(r.Input)))
	}
	if t.Name == "" && t.URL == "" {
		words = append(words, "--")
		for _, word := range t.Command {
			words = append(words, term.ShellWord(word))
		}
	}
	return strings.Join(words, " ")
}

// curlLines returns commands that send the request. Before 2026-07-28 they initialize first.
func curlLines(t *Target, r *run, revision string) string {
	const client = `{"name":"curl","version":"1"}`
	curl := "curl -sS " + term.ShellWord(t.URL) + " \\\n  -H 'Content-Type: application/json' \\\n" +
		"  -H 'Accept: application/json, text/event-stream' \\\n  -H \"Authorization: Bearer $TOKEN\""
	header := func(name, value string) string { return " \\\n  -H " + term.ShellWord(name+": "+value) }
	body := func(method, params string) string {
		message := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
		return " \\\n  --data-binary " + term.ShellWord(message)
	}
	method, params := r.Item.method(), string(r.Item.params(r.Input))
	if driver.HasSessions(revision) {
		open := `{"protocolVersion":"` + revision + `","capabilities":{},"clientInfo":` + client + `}`
		known := " \\\n  -H \"Mcp-Session-Id: $ID\"" + header("MCP-Protocol-Version", revision)
		return "ID=$(" + curl + " -o /dev/null -D -" + body(driver.MethodInitialize, open) +
			" | tr -d '\\r' | sed -n 's/^mcp-session-id: //Ip')\n" +
			curl + known + " \\\n  --data-binary '{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}'\n" +
			curl + known + body(method, params)
	}
	curl += header("MCP-Protocol-Version", revision) + header("Mcp-Method", method)
	if name := r.Item.target(r.Input); name != "" {
		curl += header("Mcp-Name", headerText(name))
	}
	if r.Item.Kind == kindTools {
		fields, _ := driver.HeaderParamsOf(r.Item.Schema) // a tool with an invalid schema repeats none
		for _, p := range fields {
			if value, ok := argumentText(r.Input, p.Path); ok {
				curl += header("Mcp-Param-"+p.Header, headerText(value))
			}
		}
	}
	const meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"%s","io.modelcontextprotocol/clientInfo":%s,` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}`
	joined := strings.TrimSuffix(strings.TrimSpace(params), "}") + fmt.Sprintf(meta, revision, client)
	if r.Item.Kind == kindMethods && strings.Trim(params, "{} \n\t\r") == "" { // no member precedes the comma
		joined = "{" + strings.TrimPrefix(fmt.Sprintf(meta, revision, client), ",")
	}
	return curl + body(method, joined)
}

// headerText encodes a value for a header. Spec: basic/transports/streamable-http, Value Encoding.
func headerText(value string) string {
	plain := strings.Trim(value, " \t") == value && !strings.HasPrefix(value, "=?base64?") &&
		!strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
	if plain {
		return value
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(value)) + "?="
}

// argumentText returns an argument as a header repeats it.
func argumentText(raw []byte, path []string) (text string, ok bool) {
	for _, name := range path {
		if raw, ok = rawjson.Get(raw, name); !ok {
			return "", false
		}
	}
	if s, err := rawjson.Unquote(raw); err == nil {
		return s, true
	}
	return string(raw), rawjson.Kind(raw) != 'n'
}

// goProgram returns a program that sends the request with the SDK.
func goProgram(t *Target, r *run) string {
	transport, importHTTP := "mcp.Command(", ""
	for i, word := range t.Command {
		transport += strings.Repeat(", ", min(i, 1)) + strconv.Quote(word)
	}
	transport += ")"
	if t.URL != "" {
		transport, importHTTP = "mcphttp.NewTransport("+strconv.Quote(t.URL)+", nil)",
			"\n\t\"github.com/patchbay-mcp/patchbay/mcphttp\""
	}
	return fmt.Sprintf(`package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"%s
)

func main() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, %s, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	result, err := c.Do(ctx, %q, json.RawMessage(%s))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%%s\n", result)
}
`, importHTTP, transport, r.Item.method(), goText(r.Item.params(r.Input)))
}

// goText returns a string literal, without escapes if possible.
func goText(raw stdjson.RawMessage) string {
	if strconv.CanBackquote(strings.ReplaceAll(string(raw), "\n", "")) {
		return "`" + string(raw) + "`"
	}
	return strconv.Quote(string(raw))
}
