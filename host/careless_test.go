package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newFiles returns a server with tools whose input schema names their arguments.
func newFiles() *recorded {
	s := mcp.NewServer("files", "1.0.0", nil)
	type options struct {
		Mode string `json:"mode,omitempty"`
	}
	type in struct {
		Path    string    `json:"path"`
		Options []options `json:"options,omitempty"`
		Secret  string    `json:"secret,omitempty"`
		Env     any       `json:"env,omitempty"`
	}
	for _, name := range []string{"read", "admin"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(_ context.Context, in in) (string, error) { return name + in.Path, nil })
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet"}, func(_ context.Context, in struct {
		Who string `json:"who"`
	}) (string, error) {
		return "hello " + in.Who, nil
	})
	mcp.AddResource(s, &mcp.Resource{URI: "file:///a", Name: "a"}, func(context.Context, string) (string, error) {
		return "a", nil
	})
	s.AddExtension("com.example/files", map[string]int{})
	s.HandleMethod("files/count", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return nil, &mcp.Error{Code: -32023, Message: "no count", Data: json.RawMessage(`{"files":1}`)}
	}))
	return &recorded{Handler: s}
}

// carelessRequests are requests that a careless server understands differently, because it ignores the case
// of names or characters around them.
var carelessRequests = []struct{ method, params string }{
	{"tools/call", `{"name":"files__read","Name":"admin","arguments":{"path":"a"}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a"},"Arguments":{"path":"b"}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a"},"argument\u017f":{"path":"b"}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a","Path":"b"}}`},
	{"tools/call", `{"name":"files__read","arguments":{"PATH":"b"}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a","path ":"b"}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a","path\u0000":"b"}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a","options":[{"mode":"r"},{"Mode":"w"}]}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a","other":1,"Other":2}}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a","Secret":"s"}}`},
	{"tools/call", `{"name":"files__read","arguments":["a"]}`},
	{"tools/call", `{"name":"files__read","arguments":{"path":"a"},"Task":{}}`},
	{"prompts/get", `{"name":"files__greet","arguments":{"who":"a","WHO":"b"}}`},
	{"prompts/get", `{"name":"files__greet","NAME":"other","arguments":{"who":"a"}}`},
	{"resources/read", `{"uri":"file:///a","URI":"file:///b"}`},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"files__greet","Name":"x"},"argument":{"name":"who","value":""}}`},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"files__greet"},"argument":{"name":"who","value":"","Value":"x"}}`},
}

// The host refuses requests that a careless server could understand differently than the policy, for clients
// and servers of every revision.
//
// Requirement: HOST-14
func TestCarelessServersGetNoOtherRequest(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if up.Transport != mcptest.InMemory {
			return
		}
		files := newFiles()
		h := newHost(t, map[string]mcp.Handler{"files": files, "calc": newServer("calc")}, up,
			`{"servers":{"files":{"hideArgs":{"read":["secret"]}}}}`)
		c := mcptest.Connect(t, h.For(&policy.Caller{}), down, nil)
		for _, r := range carelessRequests {
			if raw, err := c.Try(r.method, paramsOf(t, r.params)); err == nil || err.Code != mcp.CodeInvalidParams {
				t.Errorf("%s %s: got %s, %v, want invalid params", r.method, r.params, raw, err)
			}
		}
		for _, method := range []string{"Tools/call", "tool\u017f/call", "tools /call", "tools//call"} {
			if _, err := c.Try(method, paramsOf(t, `{"name":"files__read"}`)); err == nil || err.Code != mcp.CodeMethodNotFound {
				t.Errorf("%q: got %v, want an unknown method", method, err)
			}
		}
		for _, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete"} {
			for _, req := range files.of(method) {
				t.Errorf("%s reached the server: %s", method, req.Params)
			}
		}
	})
}

func paramsOf(t *testing.T, text string) (params map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &params); err != nil {
		t.Fatal(err)
	}
	return params
}

// A server gets the members that the protocol defines, and arguments whose names no schema knows.
func TestServersGetDefinedMembersOnly(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		files := newFiles()
		h := newHost(t, map[string]mcp.Handler{"files": files, "calc": newServer("calc")}, up,
			`{"servers":{"files":{"hideArgs":{"read":["secret"]}}}}`)
		c := mcptest.Connect(t, h.For(&policy.Caller{}), down, nil)
		c.Call("tools/call", paramsOf(t, `{"name":"files__read","admin":true,"uri":"u","cursor":"c",
			"arguments":{"path":"a","secret":"s","env":{"PATH":"/bin","path":"x"}}}`))
		for _, req := range files.of("tools/call") {
			text := string(req.Params)
			if !strings.Contains(text, `{"env":{"PATH":"/bin","path":"x"},"path":"a"}`) ||
				strings.Contains(text, "admin") || strings.Contains(text, `"uri"`) || strings.Contains(text, "cursor") {
				t.Errorf("the server got %s", text)
			}
		}
	})
}

// Errors of extension methods keep their codes, including codes that the protocol reserves.
//
// Requirement: RPC-26
func TestErrorCodesOfExtensionsAreRelayed(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Since("2025-11-25") || !down.Since("2025-11-25") {
			return // has no extensions
		}
		h := openHost(t, map[string]mcp.Handler{"files": newFiles()}, up, "{}", "", nil)
		_, failed := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil).Do(t.Context(), "files/count", nil)
		var err *mcp.Error
		if !errors.As(failed, &err) || err.Code != -32023 || err.Message != "no count" || string(err.Data) != `{"files":1}` {
			t.Errorf("got %v, want the error of the server", failed)
		}
	})
}

// A user approves the members of `_meta` that the server gets. No other members are sent.
//
// Requirement: HOST-21
func TestApprovalIsForMeta(t *testing.T) {
	h, b := openBank(t, "modern", host.Options{Policy: askPolicy})
	view := h.For(&policy.Caller{})
	call := func(meta, more string) map[string]json.RawMessage {
		t.Helper()
		params := `{"name":"bank__pay","arguments":` + payment + more + `,"_meta":{` + meta +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"f","version":"1"},"io.modelcontextprotocol/clientCapabilities":` +
			`{"elicitation":{"form":{}},"extensions":{"com.example/x":{}}}}}`
		req := must(mcp.NewRequest(&jsonrpc.Message{Method: "tools/call", Params: json.RawMessage(params)}))
		res, err := view.ServeMCP(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(must(req.EncodeResult(res)), &members); err != nil {
			t.Fatal(err)
		}
		return members
	}
	const parent = `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333`
	asked := call(parent+`1-01","com.example/role":"user","org.other/role":"x",`, "")
	if text := string(asked["inputRequests"]); !strings.Contains(text, `com.example/role`) || strings.Contains(text, "org.other") {
		t.Fatalf("got %s, want a question with what is sent", text)
	}
	answer := approveMember(asked, "once")
	if r := call(parent+`2-01","com.example/role":"admin",`, answer); b.runs.Load() != 0 {
		t.Errorf("another _meta: got %s and %d runs", r, b.runs.Load())
	}
	if r := call(parent+`3-01","com.example/role":"user",`, answer); b.runs.Load() != 1 {
		t.Errorf("the same _meta in another span: got %s and %d runs", r, b.runs.Load())
	}
}
