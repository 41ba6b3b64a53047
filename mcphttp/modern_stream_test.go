package mcphttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// newAskingServer returns a server whose tool "survey" reports progress twice and then asks the
// client. The tool "wait" reports progress, and then waits until proceed is closed.
func newAskingServer() (server *mcp.Server, tool *mcp.Registration[mcp.Tool], proceed chan struct{}) {
	server = mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})
	proceed = make(chan struct{})
	mcp.AddTool(server, &mcp.Tool{Name: "survey"}, func(ctx context.Context, _ struct{}) (string, error) {
		mcp.Progress(ctx, 1, 2, "")
		mcp.Progress(ctx, 2, 2, "")
		return mcp.Ask[string](ctx, "question", "What?", nil)
	})
	tool = mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		mcp.Progress(ctx, 1, 2, "")
		<-proceed
		mcp.Progress(ctx, 2, 2, "")
		return "done", nil
	})
	return server, tool, proceed
}

// modernCallWithToken returns the body and headers of a call with a progress token, of a client
// that supports elicitation.
func modernCallWithToken(tool string, token int) (string, []string) {
	body, headers := modernCall("tools/call", `"name":"`+tool+`"`)
	body = strings.Replace(body, `"_meta":{`, fmt.Sprintf(`"_meta":{"progressToken":%d,`, token), 1)
	return strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1), headers
}

// A streamMessage is a message on an event stream.
type streamMessage struct {
	ID     json.RawMessage
	Method string
	Params struct{ ProgressToken int }
	Result struct{ ResultType string }
}

func (s *stream) nextMessage() (m streamMessage) {
	s.t.Helper()
	e := s.next()
	if err := json.Unmarshal(e.Data, &m); err != nil {
		s.t.Fatalf("%v: %s", err, e.Data)
	}
	return m
}

// Requirement: MHTTP-02
func TestStreamCarriesNotificationsOfItsRequestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, tool, proceed := newAskingServer()
		f := start(t, server, nil)
		var streams []*stream
		for token := range 3 {
			body, headers := modernCallWithToken("wait", token)
			streams = append(streams, f.stream(f.request(t.Context(), http.MethodPost, body, headers...)))
			streams[token].nextMessage()
		}
		tool.Update(func(t *mcp.Tool) { t.Description = "changed" }) // no stream of a call carries the change
		synctest.Wait()
		close(proceed)
		for token, s := range streams {
			if m := s.nextMessage(); m.Method != "notifications/progress" || m.Params.ProgressToken != token {
				t.Errorf("stream %d: got %s of token %d, want its progress", token, m.Method, m.Params.ProgressToken)
			}
			if m := s.nextMessage(); m.Result.ResultType != "complete" {
				t.Errorf("stream %d: got %+v, want the result", token, m)
			}
			s.expectEnd()
		}
	})
}

// Requirement: MHTTP-03, MRTR-23
func TestStreamsCarryNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, tool, _ := newAskingServer()
		f := start(t, server, nil)
		body, headers := modernCallWithToken("survey", 1)
		call := f.stream(f.request(t.Context(), http.MethodPost, body, headers...))
		for range 2 {
			if m := call.nextMessage(); m.Method != "notifications/progress" || m.ID != nil {
				t.Errorf("got %s with id %s, want a notification", m.Method, m.ID)
			}
		}
		if m := call.nextMessage(); m.Method != "" || m.Result.ResultType != "input_required" {
			t.Errorf("got %+v, want a result that asks for input", m)
		}
		call.expectEnd()

		listen := f.modernStream(t.Context(), "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
		listen.nextMessage() // acknowledgement
		tool.Update(func(t *mcp.Tool) { t.Description = "changed" })
		if m := listen.nextMessage(); m.Method != "notifications/tools/list_changed" || m.ID != nil {
			t.Errorf("got %s with id %s, want a notification", m.Method, m.ID)
		}
	})
}

// Each of these requests would have an event stream if it was valid.
//
// Requirement: MHTTP-18
func TestRefusalsPrecedeTheStream(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, request := range []struct{ method, params string }{
		{"subscriptions/listen", `"notifications":{}`},
		{"tools/call", `"name":"notify"`},
	} {
		body, headers := modernCall(request.method, request.params)
		without := func(name string) []string {
			return override(headers, []string{name + ": "})
		}
		for _, test := range []struct {
			name, body string
			headers    []string
			code       int
		}{
			{"no version header", body, without("MCP-Protocol-Version"), driver.CodeHeaderMismatch},
			{"no method header", body, without("Mcp-Method"), driver.CodeHeaderMismatch},
			{"no _meta", strings.Replace(body, "_meta", "_other", 1), headers, mcp.CodeInvalidParams},
			{"unsupported version", strings.Replace(body, modern, "2999-01-01", 1),
				override(headers, []string{"MCP-Protocol-Version: 2999-01-01"}), driver.CodeUnsupportedProtocolVersion},
			{"not JSON", body[:len(body)-1], headers, -32700},
			{"media type", body, append(headers, "Content-Type: text/plain"), mcp.CodeInvalidRequest},
			{"origin", body, append(headers, "Origin: https://evil.example"), mcp.CodeInvalidRequest},
		} {
			got := f.do(http.MethodPost, test.body, test.headers...)
			if got.status/100 != 4 || got.code() != test.code || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s, %s: got %d %s %s, want 4xx and JSON with code %d", request.method, test.name, got.status,
					got.header.Get("Content-Type"), got.body, test.code)
			}
		}
	}
	got := f.modern("tools/call", `"name":"missing"`) // the handler decides
	if got.status != 400 || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("missing capability: got %d %s, want 400 and JSON", got.status, got.header.Get("Content-Type"))
	}
}
