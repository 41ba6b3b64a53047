// Package differential_test compares the requests that the policy of a gateway has decided about with the
// requests that other SDKs read from the forwarded messages. `go test -requests 1000000 ./differential` sends
// a million random requests.
package differential_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gorpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A deed is a request as a peer understands it: the method, the name or URI, and the arguments.
type deed struct {
	method, target string
	arguments      json.RawMessage
}

func (d *deed) String() string { return fmt.Sprintf("%s %q %s", d.method, d.target, d.arguments) }

// decoded returns the arguments of a deed. Numbers beyond the range of a double are infinite, as in JavaScript.
func decoded(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var all any
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	members, ok := withDoubles(all).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the arguments %s are no object", raw)
	}
	return members, nil
}

func withDoubles(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = withDoubles(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withDoubles(v[i])
		}
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return fmt.Sprint(f)
		}
		return f
	}
	return v
}

// careless contains arguments that a server has read into a struct: encoding/json ignores the case of names.
type careless struct {
	Path, Secret *string
	Options      []struct{ Mode *string }
	Node         *struct {
		Value *string
		Next  *struct{ Value *string }
	}
}

func readCareless(raw []byte) (c careless, ok bool) { return c, json.Unmarshal(raw, &c) == nil }

// readExact reads the same members as readCareless, but only by their exact names. It ignores values of another
// type, for which readCareless fails.
func readExact(arguments map[string]any) (c careless) {
	text := func(from any, name string) *string {
		members, _ := from.(map[string]any)
		if s, ok := members[name].(string); ok {
			return &s
		}
		return nil
	}
	c.Path, c.Secret = text(arguments, "path"), text(arguments, "secret")
	if options, ok := arguments["options"].([]any); ok {
		c.Options = make([]struct{ Mode *string }, len(options))
		for i, o := range options {
			c.Options[i].Mode = text(o, "mode")
		}
	}
	if node, ok := arguments["node"].(map[string]any); ok {
		c.Node = &struct {
			Value *string
			Next  *struct{ Value *string }
		}{Value: text(node, "value")}
		if next, ok := node["next"].(map[string]any); ok {
			c.Node.Next = &struct{ Value *string }{text(next, "value")}
		}
	}
	return c
}

// filesSchema is the input schema of the tools of the peers.
const filesSchema = `{"type":"object","properties":{"path":{"type":"string"},"secret":{"type":"string"},
	"options":{"type":"array","items":{"type":"object","properties":{"mode":{"type":"string"}}}},
	"node":{"$ref":"#/$defs/node"},"env":{"type":"object","additionalProperties":{}}},
	"$defs":{"node":{"type":"object","properties":{"value":{"type":"string"},"next":{"$ref":"#/$defs/node"}}}}}`

// items are the names of the peers' tools and prompts, and the last segments of their resources' URIs.
var items = []string{"read", "admin"}

// A differential is a gateway that records its decisions and the params that it forwards, and the peers that
// read the forwarded params.
type differential struct {
	view    *host.View
	decided *policy.Action
	sent    []byte // params of the last request that was forwarded
	method  string
	mcpGo   *mcpgoserver.MCPServer
	goSDK   gosdk.Connection
	got     *deed // the request as the handler of a peer understood it
}

func newDifferential(tb testing.TB, revision string) *differential {
	tb.Helper()
	d := &differential{}
	f := must(config.Parse([]byte(`{"mcpServers":{"a":{"command":"a"},"b":{"command":"b"}},"patchbay":{"servers":` +
		`{"a":{"trust":"insecureAll","hideArgs":{"read":["secret"]}},"b":{"trust":"insecureAll"}}}}`)))
	h := must(host.Open(tb.Context(), f, &host.Options{Policy: d, Client: mcp.ClientOptions{Revision: revision},
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(mcp.HandlerFunc(d.serve)), nil
		}}))
	tb.Cleanup(func() { _ = h.Close() })
	d.view = h.For(&policy.Caller{})
	d.mcpGo = d.newMCPGo()
	d.goSDK = d.newGoSDK(tb)
	return d
}

// Needs, Epoch and Decide implement the policy of the gateway.
func (d *differential) Needs(policy.ActionKind) policy.Fields { return policy.FieldArguments }
func (d *differential) Epoch() uint64                         { return 1 }

// Decide records the action.
func (d *differential) Decide(_ context.Context, a *policy.Action) policy.Decision {
	switch a.Kind {
	case policy.ActionCall, policy.ActionGet, policy.ActionRead, policy.ActionComplete:
		kept := *a
		d.decided = &kept
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}

// lists are the results of discovery and list requests, by method.
var lists = map[string]string{
	"server/discover":          `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{}}`,
	"tools/list":               `"tools":[{"name":"read","inputSchema":` + filesSchema + `},{"name":"admin","inputSchema":` + filesSchema + `}]`,
	"prompts/list":             `"prompts":[{"name":"read","arguments":[{"name":"path"}]},{"name":"admin"}]`,
	"resources/list":           `"resources":[{"uri":"file:///read","name":"read"},{"uri":"file:///admin","name":"admin"}]`,
	"resources/templates/list": `"resourceTemplates":[]`,
}

// serve is the server behind the gateway: it records the requests that it receives.
func (d *differential) serve(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	if list, ok := lists[req.Method]; ok {
		return mcp.RawResult(`{"resultType":"complete",` + list + `,"ttlMs":60000,"cacheScope":"private"}`), nil
	}
	d.method, d.sent = req.Method, append(d.sent[:0], req.Params...)
	return nil, mcp.Errorf(-31000, "seen")
}

var errSeen = errors.New("seen")

func (d *differential) newMCPGo() *mcpgoserver.MCPServer {
	s := mcpgoserver.NewMCPServer("mcpgo", "1", mcpgoserver.WithCompletions(),
		mcpgoserver.WithPromptCompletionProvider(mcpGoCompletion{d}))
	for _, name := range items {
		s.AddTool(mcpgo.NewToolWithRawSchema(name, "", json.RawMessage(filesSchema)),
			func(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
				d.got = &deed{"tools/call", r.Params.Name, must(json.Marshal(r.GetRawArguments()))}
				return nil, errSeen
			})
		s.AddPrompt(mcpgo.NewPrompt(name), func(_ context.Context, r mcpgo.GetPromptRequest) (*mcpgo.GetPromptResult, error) {
			d.got = &deed{"prompts/get", r.Params.Name, must(json.Marshal(r.Params.Arguments))}
			return nil, errSeen
		})
		s.AddResource(mcpgo.NewResource("file:///"+name, name),
			func(_ context.Context, r mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
				d.got = &deed{"resources/read", r.Params.URI, nil}
				return nil, errSeen
			})
	}
	return s
}

type mcpGoCompletion struct{ d *differential }

func (c mcpGoCompletion) CompletePromptArgument(_ context.Context, prompt string, a mcpgo.CompleteArgument,
	_ mcpgo.CompleteContext) (*mcpgo.Completion, error) {
	c.d.got = &deed{"completion/complete", prompt, must(json.Marshal(map[string]string{"name": a.Name, "value": a.Value}))}
	return nil, errSeen
}

// byMCPGo returns how mcp-go understands the last request, or nil if mcp-go refuses it.
func (d *differential) byMCPGo() *deed {
	d.got = nil
	d.mcpGo.HandleMessage(context.Background(), d.message())
	return d.got
}

func (d *differential) message() []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, d.method, d.sent)
}

func (d *differential) newGoSDK(tb testing.TB) gosdk.Connection {
	s := gosdk.NewServer(&gosdk.Implementation{Name: "gosdk", Version: "1"}, &gosdk.ServerOptions{
		CompletionHandler: func(_ context.Context, r *gosdk.CompleteRequest) (*gosdk.CompleteResult, error) {
			d.got = &deed{"completion/complete", r.Params.Ref.Name, must(json.Marshal(
				map[string]string{"name": r.Params.Argument.Name, "value": r.Params.Argument.Value}))}
			return nil, errSeen
		}})
	for _, name := range items {
		s.AddTool(&gosdk.Tool{Name: name, InputSchema: json.RawMessage(filesSchema)},
			func(_ context.Context, r *gosdk.CallToolRequest) (*gosdk.CallToolResult, error) {
				d.got = &deed{"tools/call", r.Params.Name, r.Params.Arguments}
				return nil, errSeen
			})
		s.AddPrompt(&gosdk.Prompt{Name: name}, func(_ context.Context, r *gosdk.GetPromptRequest) (*gosdk.GetPromptResult, error) {
			d.got = &deed{"prompts/get", r.Params.Name, must(json.Marshal(r.Params.Arguments))}
			return nil, errSeen
		})
		s.AddResource(&gosdk.Resource{URI: "file:///" + name, Name: name},
			func(_ context.Context, r *gosdk.ReadResourceRequest) (*gosdk.ReadResourceResult, error) {
				d.got = &deed{"resources/read", r.Params.URI, nil}
				return nil, errSeen
			})
	}
	near, far := gosdk.NewInMemoryTransports()
	session := must(s.Connect(tb.Context(), far, nil))
	conn := must(near.Connect(tb.Context()))
	tb.Cleanup(func() { _ = conn.Close(); _ = session.Wait() })
	write := func(text string) {
		if err := conn.Write(tb.Context(), must(gorpc.DecodeMessage([]byte(text)))); err != nil {
			tb.Fatal(err)
		}
	}
	write(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"c","version":"1"}}}`)
	must(conn.Read(tb.Context()))
	write(`{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`)
	return conn
}

// byGoSDK returns how the official Go SDK understands the last request, or nil if the SDK refuses it.
func (d *differential) byGoSDK(tb testing.TB) *deed {
	d.got = nil
	m, err := gorpc.DecodeMessage(d.message())
	if err != nil {
		return nil
	}
	if err := d.goSDK.Write(context.Background(), m); err != nil {
		tb.Fatal(err)
	}
	for {
		m, err := d.goSDK.Read(context.Background())
		if err != nil {
			tb.Fatal(err)
		}
		if _, ok := m.(*gorpc.Response); ok {
			return d.got
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// try sends a request through the gateway. It reports whether the gateway forwarded the request, and fails the
// test if the policy did not decide about it before.
func (d *differential) try(tb testing.TB, method, params string) (forwarded bool) {
	tb.Helper()
	m, err := jsonrpc.Decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	if err != nil {
		return false
	}
	req, err := mcp.NewRequest(m)
	if err != nil {
		return false
	}
	d.decided, d.method = nil, ""
	_, _ = d.view.ServeMCP(tb.Context(), req)
	if d.method == "" {
		return false
	}
	if d.decided == nil || d.decided.Method != d.method {
		tb.Fatalf("%s %s was forwarded as %s, and decided as %+v", method, params, d.method, d.decided)
	}
	return true
}

// compare fails the test if a peer understands another request than the policy decided about.
func (d *differential) compare(tb testing.TB, peer string, got *deed) (compared bool) {
	tb.Helper()
	if got == nil {
		return false // refused
	}
	if got.method != d.decided.Method || got.target != d.decided.Target {
		tb.Fatalf("%s takes %s for %v, decided was %s %q", peer, d.sent, got, d.decided.Method, d.decided.Target)
	}
	if got.method != "tools/call" && got.method != "prompts/get" {
		return true
	}
	want, err := decoded(d.decided.Arguments)
	if err != nil {
		tb.Fatalf("decided was about %s: %v", d.decided.Arguments, err)
	}
	if got.method == "prompts/get" { // values are strings, and Go decodes null as an empty string
		for name, value := range want {
			if value == nil {
				want[name] = ""
			}
		}
	}
	have, err := decoded(got.arguments)
	if err != nil || !reflect.DeepEqual(have, want) {
		tb.Fatalf("%s takes %s for %v, %v, decided was %v", peer, d.sent, got, err, want)
	}
	c, ok := readCareless(got.arguments)
	if got.method == "tools/call" && ok && !reflect.DeepEqual(c, readExact(want)) {
		tb.Fatalf("a careless handler of %s takes %s for something else than %v", peer, d.sent, want)
	}
	return true
}
