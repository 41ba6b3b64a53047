package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A conversation is a call of the tool "order" in two rounds, on any connection.
type conversation struct{ name, state string }

// begin sends the first round.
func (v *conversation) begin(t *testing.T, c *mcptest.Client) {
	t.Helper()
	v.state = ""
	r := v.send(t, c)
	if v.state = r.RequestState; r.ResultType != "input_required" || v.state == "" {
		t.Fatalf("%s: got %+v, want input_required with a state", v.name, r)
	}
}

// finish sends the second round, with the state, and returns the text of the result.
func (v *conversation) finish(t *testing.T, c *mcptest.Client) string {
	t.Helper()
	return v.send(t, c).text()
}

// params returns the params of the next round.
func (v *conversation) params() object {
	params := object{"name": "order", "arguments": object{"item": v.name}}
	if v.state != "" {
		params["requestState"] = v.state
		params["inputResponses"] = object{"size": acceptResult(object{"value": v.name})}
	}
	return params
}

func (v *conversation) send(t *testing.T, c *mcptest.Client) reply {
	t.Helper()
	m := c.Send("tools/call", v.params()).Wait()
	if m.Error != nil {
		t.Fatalf("%s: %v", v.name, m.Error)
	}
	return decode[reply](t, m.Result)
}

// orderServer returns a server with the tool "order", which asks for a size. Servers with the same
// keys are replicas.
func orderServer(t *testing.T) *mcp.Server {
	s := newServer(t, &mcp.ServerOptions{StateKeys: [][]byte{[]byte(strings.Repeat("k", 32))}})
	type in struct {
		Item string `json:"item"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "order"}, func(ctx context.Context, in in) (string, error) {
		size, err := mcp.Ask[string](ctx, "size", "Which size of "+in.Item+"?", nil)
		return in.Item + " " + size, err
	})
	return s
}

// Two conversations are interleaved on one connection, and continue on another one and on another
// replica.
//
// Requirement: STL-02, STL-03, STL-05, STL-06
func TestConversationsAreIndependentOfConnections(t *testing.T) {
	replica := orderServer(t)
	mcptest.RunOn(t, orderServer(t), mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		for name, other := range map[string]*mcptest.Client{
			"same connection":    c,
			"another connection": c.Another(nil),
			"another replica":    mcptest.Connect(t, replica, c.Combination, nil),
		} {
			a, b := &conversation{name: "a"}, &conversation{name: "b"}
			a.begin(t, c)
			b.begin(t, c)
			if got := b.finish(t, other); got != "b b" {
				t.Errorf("%s: got %q of the second conversation, want b b", name, got)
			}
			if got := a.finish(t, other); got != "a a" {
				t.Errorf("%s: got %q of the first conversation, want a a", name, got)
			}
		}
		// Without its state, a request on the same connection is a new conversation.
		a := &conversation{name: "a"}
		a.begin(t, c)
		a.begin(t, c)
	})
}

// listServer returns a server with one item in each list.
func listServer(t *testing.T) *mcp.Server {
	s := newServer(t, nil)
	addTool(s, "tool", func(context.Context) (string, error) { return "done", nil })
	addText(s, "mem://one", "text")
	mcp.AddPrompt(s, &mcp.Prompt{Name: "prompt"}, func(context.Context, struct{}) (string, error) { return "", nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "mem://n/{n}", Name: "n"},
		func(_ context.Context, vars map[string]string) (string, error) { return vars["n"], nil })
	return s
}

// Requirement: STL-07
func TestListsDoNotDependOnTheConnectionOrOtherRequests(t *testing.T) {
	methods := []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
	mcptest.RunOn(t, listServer(t), mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		lists := func(c *mcptest.Client) (all []string) {
			for _, method := range methods {
				all = append(all, string(c.Call(method, nil)))
			}
			return all
		}
		before := lists(c)
		c.Call("tools/call", object{"name": "tool"})
		c.Call("resources/read", object{"uri": "mem://one"})
		c.Call("prompts/get", object{"name": "prompt"})
		stop := c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true})
		defer stop()
		for name, other := range map[string]*mcptest.Client{"same": c, "another": c.Another(nil)} {
			for i, got := range lists(other) {
				if got != before[i] {
					t.Errorf("%s connection: %s: got %s, want %s", name, methods[i], got, before[i])
				}
			}
		}
	})
}

// The server's results do not depend on the name of the client, and those of the client not on the
// name of the server.
//
// Requirement: META-14
func TestIdentityDoesNotChangeBehaviour(t *testing.T) {
	infos := []object{{"name": "mcptest", "version": "1"}, {"name": "Claude", "version": "0.1"},
		{"name": "x", "version": ""}}
	mcptest.RunOn(t, listServer(t), mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		for _, method := range []string{"server/discover", "tools/list", "resources/list"} {
			want := string(c.Call(method, nil))
			for _, info := range infos {
				envelope := object{"io.modelcontextprotocol/clientInfo": info}
				if got := string(c.Call(method, object{"_meta": envelope})); got != want {
					t.Errorf("%s of client %v: got %s, want %s", method, info, got, want)
				}
			}
		}
	})
	for _, info := range infos {
		server, _ := json.Marshal(info)
		c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) {
			return `{"content":[{"type":"text","text":"x"}],"_meta":{"io.modelcontextprotocol/serverInfo":` +
				string(server) + `}}`, nil
		})
		if r, err := c.CallTool(t.Context(), "x", nil); err != nil || r.Text() != "x" {
			t.Errorf("server %s: got %+v, %v, want x", server, r, err)
		}
	}
}

// Unknown members of _meta pass in both directions, also those with reserved prefixes, and the
// trace context.
//
// Requirement: META-06, META-16
func TestUnknownMetaIsUnchanged(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	sent := mcp.Meta{
		"traceparent": trace, "tracestate": "vendor=1", "baggage": "user=a",
		"com.example/x": map[string]any{"a": []any{1.5, nil}}, "plain": true,
	}
	keys := []string{"traceparent", "tracestate", "baggage", "com.example/x", "plain"}
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(ctx context.Context, _ struct{}) (*mcp.CallToolResult, error) {
		result := &mcp.CallToolResult{Meta: mcp.Meta{}}
		for _, key := range keys {
			raw, ok := mcp.RequestFrom(ctx).Meta(key)
			if !ok {
				return nil, fmt.Errorf("%s is missing", key)
			}
			result.Meta[key] = json.RawMessage(raw)
		}
		result.Meta["com.example.mcp.dev/reserved"] = "a"
		return result, nil
	})
	onClients(t, s, nil, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: sent})
		r, err := c.CallTool(ctx, "echo", nil)
		if err != nil || r.IsError {
			t.Fatalf("got %+v, %v", r, err)
		}
		for _, key := range keys {
			if got, want := fmt.Sprint(r.Meta[key]), fmt.Sprint(sent[key]); got != want {
				t.Errorf("%s: got %s, want %s", key, got, want)
			}
		}
		if got := r.Meta["com.example.mcp.dev/reserved"]; got != "a" {
			t.Errorf("got %v of an unknown key, want a", got)
		}
	})
}

// Another user sends the state and the answer of Ada's conversation, as a client with the same
// name.
//
// Requirement: ELI-22, ELI-35
func TestAnswersAreBoundToTheAuthenticatedUser(t *testing.T) {
	ada := &mcp.Principal{Issuer: "https://as.example", Subject: "ada", ClientID: "c"}
	opts := &mcptest.Options{Principal: ada}
	mcptest.RunOn(t, orderServer(t), mcptest.Since(mcptest.Modern), opts, func(t *testing.T, c *mcptest.Client) {
		v := &conversation{name: "a"}
		v.begin(t, c)
		raw, err := base64.RawURLEncoding.DecodeString(v.state)
		if err != nil || strings.Contains(string(raw), "as.example") {
			t.Errorf("got state %q, %v, want it encrypted", raw, err)
		}
		for name, principal := range map[string]*mcp.Principal{
			"no user":        nil,
			"another user":   {Issuer: "https://as.example", Subject: "mallory", ClientID: "c"},
			"another client": {Issuer: "https://as.example", Subject: "ada", ClientID: "d"},
		} {
			_, err := c.Another(&mcptest.Options{Principal: principal}).Try("tools/call", v.params())
			wantCode(t, name, err, mcp.CodeInvalidParams)
		}
		if got := v.finish(t, c.Another(opts)); got != "a a" {
			t.Errorf("the same user: got %q, want a a", got)
		}
	})
}
