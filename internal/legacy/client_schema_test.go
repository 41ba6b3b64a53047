package legacy

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// An echoConn is a Conn to a server that returns one result for all requests after initialize.
type echoConn struct {
	initialized string // the result of initialize
	answer      jsonrpc.Message
	params      json.RawMessage // of the last request
}

func (e *echoConn) RoundTrip(_ context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	e.params = req.Params
	if req.Method == wire.MethodInitialize {
		return &jsonrpc.Message{ID: jsonrpc.IntID(1), Result: json.RawMessage(e.initialized)}, nil
	}
	answer := e.answer
	return &answer, nil
}

func (e *echoConn) Send(context.Context, *jsonrpc.Message) error { return nil }
func (e *echoConn) Done() <-chan struct{}                        { return nil }
func (e *echoConn) Close() error                                 { return nil }

const richClient = `{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"experimental":{"x":{}},"extensions":{"io.modelcontextprotocol/ui":{},"io.modelcontextprotocol/tasks":{}}}`

// openClient returns a client of a server of rev that declares all capabilities.
func openClient(t testing.TB, rev wire.Revision, conn *echoConn) *Client {
	t.Helper()
	conn.initialized = `{"protocolVersion":"` + rev.String() + `","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"i"}`
	c := NewClient(ClientConfig{
		Revision: rev, Capabilities: json.RawMessage(richClient), Logger: slog.New(slog.DiscardHandler),
		Info: json.RawMessage(`{"name":"n","title":"T","version":"1","description":"d","websiteUrl":"https://example.com","icons":` + richIcons + `}`),
		Answer: func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			return params, nil
		},
	})
	t.Cleanup(func() { c.Close() })
	if _, err := c.Open(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestInitializeRequestIsValidInEachRevision(t *testing.T) {
	for _, rev := range legacyRevisions() {
		conn := &echoConn{}
		c := openClient(t, rev, conn)
		mustValidate(t, rev, "InitializeRequest/properties/params", c.initializeParams())
		mustValidate(t, wire.Latest(), "DiscoverResult", c.discovered)
		mustValidate(t, wire.Latest(), "ServerCapabilities", c.capabilities)
	}
}

func TestModernResultsAreValid(t *testing.T) {
	for _, r := range richResults {
		t.Run(r.name, func(t *testing.T) {
			for _, rev := range legacyRevisions() {
				result, _, err := modernResult(rev, r.method, appendResult(nil, rev, r.method, []byte(r.result)))
				if err != nil {
					t.Fatal(err)
				}
				mustValidate(t, wire.Latest(), r.definition, result)
			}
		})
	}
}

func TestRequestsToSessionsAreValid(t *testing.T) {
	const envelope = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}`
	for _, r := range []struct{ method, definition, params string }{
		{wire.MethodToolsList, "ListToolsRequest", `{"cursor":"c",` + envelope + `}`},
		{wire.MethodToolsCall, "CallToolRequest", `{"name":"t","arguments":{},"inputResponses":{"a":{"action":"accept"}},"requestState":"s",` + envelope + `}`},
		{wire.MethodPromptsList, "ListPromptsRequest", `{` + envelope + `}`},
		{wire.MethodPromptsGet, "GetPromptRequest", `{"name":"p","arguments":{"a":"b"},` + envelope + `}`},
		{wire.MethodResourcesList, "ListResourcesRequest", `{` + envelope + `}`},
		{wire.MethodResourcesTemplatesList, "ListResourceTemplatesRequest", `{` + envelope + `}`},
		{wire.MethodResourcesRead, "ReadResourceRequest", `{"uri":"file:///a",` + envelope + `}`},
		{wire.MethodCompletionComplete, "CompleteRequest", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"},"context":{"arguments":{"a":"b"}},` + envelope + `}`},
	} {
		t.Run(r.method, func(t *testing.T) {
			mustValidate(t, wire.Latest(), r.definition+"/properties/params", []byte(r.params))
			for _, rev := range legacyRevisions() {
				conn := &echoConn{answer: jsonrpc.Message{ID: jsonrpc.IntID(1), Result: json.RawMessage("{}")}}
				c := openClient(t, rev, conn)
				if _, err := c.RoundTrip(t.Context(), r.method, json.RawMessage(r.params), nil); err != nil {
					t.Fatal(err)
				}
				if conn.params != nil {
					mustValidate(t, rev, r.definition+"/properties/params", conn.params)
				}
			}
		})
	}
}

func TestModernInputRequestsAreValid(t *testing.T) {
	for _, q := range []struct{ method, definition, params string }{
		{wire.MethodElicitationCreate, "ElicitRequest", richForm},
		{wire.MethodElicitationCreate, "ElicitRequest", richMultiple},
		{wire.MethodElicitationCreate, "ElicitRequest", richURL},
		{wire.MethodSamplingCreateMessage, "CreateMessageRequest", richSampling},
		{wire.MethodSamplingCreateMessage, "CreateMessageRequest", richToolSampling},
		{wire.MethodRootsList, "ListRootsRequest", `{"_meta":{"com.example/k":1,"progressToken":1}}`},
	} {
		for _, rev := range legacyRevisions() {
			params, refused := projectInputRequest(rev, q.method, []byte(q.params), "")
			if refused != nil {
				continue // not in this revision
			}
			// A URL elicitation keeps its id, by which its completion is notified. Modern ones have
			// none.
			question := strings.Replace(string(modernInputRequest(q.method, params)), `,"elicitationId":""`, "", 1)
			mustValidate(t, wire.Latest(), q.definition+"/properties/params", []byte(question))
		}
	}
}

func TestResponsesAreValidInEachRevision(t *testing.T) {
	for _, a := range []struct{ method, definition, answer string }{
		{wire.MethodElicitationCreate, "ElicitResult", `{"resultType":"complete","action":"accept","content":{"a":1,"b":"c","d":true},"_meta":{"io.modelcontextprotocol/serverInfo":{}}}`},
		{wire.MethodElicitationCreate, "ElicitResult", `{"action":"decline"}`},
		{wire.MethodRootsList, "ListRootsResult", `{"roots":[{"uri":"file:///a","name":"a","_meta":{"com.example/k":1}}]}`},
		{wire.MethodSamplingCreateMessage, "CreateMessageResult", `{"role":"assistant","model":"m","stopReason":"endTurn","content":` + richText + `,"_meta":{"com.example/k":1}}`},
		{wire.MethodSamplingCreateMessage, "CreateMessageResult", `{"role":"assistant","model":"m","content":[` + richText + `,{"type":"text","text":"b"}]}`},
		{wire.MethodSamplingCreateMessage, "CreateMessageResult", `{"role":"assistant","model":"m","content":[` + richImage + `]}`},
		{wire.MethodSamplingCreateMessage, "CreateMessageResult", `{"role":"assistant","model":"m","content":` + richAudio + `}`},
		{wire.MethodSamplingCreateMessage, "CreateMessageResult", `{"role":"assistant","model":"m","stopReason":"toolUse","content":{"type":"tool_use","id":"1","name":"t","input":{}}}`},
	} {
		for _, rev := range legacyRevisions() {
			if _, ok := rev.Method(a.method); !ok {
				continue
			}
			answer, refused := projectResponse(rev, a.method, []byte(a.answer))
			if refused != nil {
				if !strings.Contains(refused.Message, "has no form for") {
					t.Errorf("%v %s: %v", rev, a.answer, refused)
				}
				continue
			}
			mustValidate(t, rev, a.definition, answer)
		}
	}
}

func TestNotificationsOfSubscriptionsAreValid(t *testing.T) {
	for _, rev := range legacyRevisions() {
		c := openClient(t, rev, &echoConn{answer: jsonrpc.Message{ID: jsonrpc.IntID(1), Result: json.RawMessage("{}")}})
		definitions := map[string]string{
			wire.NotificationSubscriptionsAcknowledged: "SubscriptionsAcknowledgedNotification",
			wire.NotificationToolsListChanged:          "ToolListChangedNotification",
			wire.NotificationResourcesUpdated:          "ResourceUpdatedNotification",
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.RoundTrip(ctx, wire.MethodSubscriptionsListen, json.RawMessage(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:y"]}}`),
			func(_ context.Context, method string, params json.RawMessage) error {
				mustValidate(t, wire.Latest(), definitions[method]+"/properties/params", params)
				delete(definitions, method)
				if method == wire.NotificationSubscriptionsAcknowledged {
					c.Receive(notification(wire.NotificationToolsListChanged, `{}`))
					c.Receive(notification(wire.NotificationResourcesUpdated, `{"uri":"x:y","title":"old"}`))
				}
				if len(definitions) == 0 {
					cancel()
				}
				return nil
			})
		if err != context.Canceled {
			t.Errorf("%v: %v", rev, err)
		}
	}
}

func FuzzClientReceives(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":"a","method":"roots/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":` + richForm + `}`,
		`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","_meta":{"progressToken":1},"task":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"m","task":{"ttl":1},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"cursor":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":` + richSampling + `}`,
		`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"content":[{"type":"text","text":"a"},{"type":"text"}],"_meta":[]}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y/z?#"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"a"}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":{}},{"jsonrpc":"2.0","id":1,"result":{}}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := jsonrpc.Decode(data)
		if err != nil {
			return
		}
		for _, rev := range legacyRevisions() {
			replies := &checkedReplies{T: t, echoConn: echoConn{}}
			replies.initialized = `{"protocolVersion":"` + rev.String() + `","capabilities":{}}`
			c := NewClient(ClientConfig{
				Revision: rev, Capabilities: json.RawMessage(richClient), Logger: slog.New(slog.DiscardHandler),
				Answer: func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
					if params != nil && jsonscan.Valid(params, jsonscan.Limits{}) != nil {
						t.Errorf("%v: Answer got invalid params %s", rev, params)
					}
					return params, nil
				},
				Notify: func(_ context.Context, method string, params json.RawMessage) {
					if jsonscan.Kind(params) != '{' {
						t.Errorf("%v: %s with %s", rev, method, params)
					}
				},
			})
			if _, err := c.Open(t.Context(), replies); err != nil {
				t.Fatal(err)
			}
			c.Receive(m)
			c.Close()
		}
	})
}

// checkedReplies is a Conn that validates what is sent.
type checkedReplies struct {
	*testing.T
	echoConn
}

func (r *checkedReplies) Send(_ context.Context, m *jsonrpc.Message) error {
	if _, err := jsonrpc.Decode(jsonrpc.Append(nil, m)); err != nil {
		r.Errorf("sent %s: %v", jsonrpc.Append(nil, m), err)
	}
	if m.Kind() == jsonrpc.Response && m.ID.IsZero() {
		r.Errorf("sent a response without an id")
	}
	return nil
}

func FuzzModernResult(f *testing.F) {
	for _, r := range richResults {
		f.Add(r.method, []byte(r.result), -32002)
	}
	f.Add(wire.MethodToolsCall, []byte(`{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"v\"1"}]}`), -32042)
	f.Add(wire.MethodResourcesRead, []byte(`{"uri":7}`), -32002)
	f.Add(wire.MethodToolsList, []byte(`{"tools":[{"execution":1},7,[]],"tool\u0073x":{},"ttlMs":-1}`), 0)
	f.Fuzz(func(t *testing.T, method string, data []byte, code int) {
		if jsonscan.Valid(data, jsonscan.Limits{}) != nil {
			return
		}
		before := string(data)
		for _, rev := range legacyRevisions() {
			result, _, err := modernResult(rev, method, data)
			if (err == nil) != (jsonscan.Kind(data) == '{') {
				t.Fatalf("%s: %v", data, err)
			}
			if err == nil {
				wantResult(t, result, "complete")
			}
		}
		if isNewTask(method, data, data) {
			wantResult(t, modernTask(data), "task")
		}
		c := &Client{cfg: ClientConfig{}, log: slog.Default(), declared: json.RawMessage(richClient), elicitations: map[string]chan struct{}{}}
		for _, c.rev = range legacyRevisions() {
			result, err := c.modernError(method, data, &jsonrpc.Error{Code: code, Data: data})
			if (result == nil) == (err == nil) {
				t.Fatalf("%s, %v", result, err)
			}
			if err == nil {
				wantResult(t, result, "input_required")
			}
			for name, object := range map[string][]byte{
				"client": sessionCapabilities(c.rev, data), "server": serverCapabilities(c.rev, data),
				"params": c.sessionParams(method, data), "elicitation": modernInputRequest(wire.MethodElicitationCreate, data),
			} {
				if object != nil && (jsonscan.Valid(object, jsonscan.Limits{}) != nil || jsonscan.Kind(object) != '{') {
					t.Fatalf("%s: %s of %s", name, object, data)
				}
			}
		}
		if string(data) != before {
			t.Fatal("the input was changed")
		}
	})
}

func wantResult(t *testing.T, result []byte, typ string) {
	t.Helper()
	got, _ := jsonscan.Get(result, "resultType")
	if err := jsonscan.Valid(result, jsonscan.Limits{}); err != nil || !jsonscan.IsString(got, typ) {
		t.Fatalf("%v: %s", err, result)
	}
}
