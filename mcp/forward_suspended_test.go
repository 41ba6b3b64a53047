package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An asked is the result of a request that requires input.
type asked struct {
	ResultType, RequestState string
	InputRequests            map[string]struct{ Method string }
}

// sessionsWithForms runs body for a client of 2026-07-28 on every transport, and every older
// revision of the server that has forms.
func sessionsWithForms(t *testing.T, s mcp.Handler, opts *mcptest.Options,
	body func(t *testing.T, c *mcptest.Client, h forwarder)) {
	t.Helper()
	for _, upstream := range mcptest.Since("2025-06-18") {
		if upstream.Revision == mcptest.Modern {
			continue
		}
		t.Run(upstream.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Minute) }) // until pending timers have fired
				server := mcptest.Dial(t, s, upstream, &mcp.ClientOptions{ForwardInput: true, Timeout: time.Minute})
				h := mcp.Forward(server).(forwarder)
				on := mcptest.Combination{Transport: upstream.Transport, Revision: mcptest.Modern}
				body(t, mcptest.Connect(t, h, on, opts), h)
			})
		})
	}
}

// try sends a request once, without answering its questions.
func try(t *testing.T, h mcp.Handler, params object) (asked, json.RawMessage, error) {
	t.Helper()
	res, err := h.ServeMCP(t.Context(), forwardedRequest(t, params))
	raw, _ := res.(mcp.RawResult)
	if err != nil {
		return asked{}, nil, err
	}
	return decode[asked](t, json.RawMessage(raw)), json.RawMessage(raw), nil
}

// forwardedRequest returns a tool call of a client that supports forms.
func forwardedRequest(t *testing.T, params object) *mcp.Request {
	t.Helper()
	params["_meta"] = object{"io.modelcontextprotocol/protocolVersion": mcptest.Modern,
		"io.modelcontextprotocol/clientInfo":         object{"name": "test", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": object{"elicitation": object{}}}
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/call", Params: encode(t, params)})
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func wantInvalidParams(t *testing.T, what string, err error, text string) {
	t.Helper()
	e, _ := err.(*mcp.Error)
	if e == nil || e.Code != mcp.CodeInvalidParams || !strings.Contains(e.Message, text) {
		t.Errorf("%s: got %v, want %d with %q", what, err, mcp.CodeInvalidParams, text)
	}
}

// askingServer has a tool that asks two questions at once.
func askingServer(t *testing.T) *mcp.Server {
	s := newServer(t, nil)
	addTool(s, "two", func(ctx context.Context) (string, error) {
		var first bool
		var second string
		err := mcp.AskAll(ctx, mcp.FormQuestion("a", "First?", &first, nil), mcp.FormQuestion("b", "Second?", &second, nil))
		return fmt.Sprint(first, " ", second, " ", err), nil
	})
	return s
}

// A client of 2026-07-28 answers the questions of a server in a session, one after the other, wrong
// at first, and twice.
func TestForwardedQuestionsAreAnsweredInRounds(t *testing.T) {
	sessionsWithForms(t, askingServer(t), nil, func(t *testing.T, _ *mcptest.Client, h forwarder) {
		call := func(state string, answers object) (asked, json.RawMessage, error) {
			return try(t, h, object{"name": "two", "requestState": state, "inputResponses": answers})
		}
		q, _, err := try(t, h, object{"name": "two"})
		if err != nil || len(q.InputRequests) != 2 || q.InputRequests["q1"].Method != "elicitation/create" {
			t.Fatalf("got %+v, %v, want two questions", q, err)
		}
		yes, text := acceptResult(object{"value": true}), acceptResult(object{"value": "x"})
		_, _, err = call(q.RequestState, object{"q1": text, "q2": yes})
		wantInvalidParams(t, "answers of the wrong type", err, "q1")
		_, _, err = try(t, h, object{"name": "other", "requestState": q.RequestState})
		wantInvalidParams(t, "another tool", err, "unknown")
		next, _, err := call(q.RequestState, object{"q2": text, "q9": text})
		if err != nil || len(next.InputRequests) != 1 || next.InputRequests["q1"].Method == "" {
			t.Fatalf("got %+v, %v, want the first question again", next, err)
		}
		_, _, err = call(q.RequestState, object{"q1": yes})
		wantInvalidParams(t, "state used twice", err, "do not repeat")
		_, raw, err := call(next.RequestState, object{"q1": yes})
		if got := decode[toolResult](t, raw); err != nil || got.text() != "true x <nil>" {
			t.Errorf("got %+v, %v, want both answers", got, err)
		}
		_, _, err = call(next.RequestState, object{"q1": yes})
		wantInvalidParams(t, "state after the end", err, "may have run")
		if u := h.Usage(); u != (driver.ForwardUsage{}) {
			t.Errorf("usage: got %+v, want none", u)
		}
	})
}

// The questions of a client that does not come back are dismissed. Meanwhile the call has no time
// limit, and other calls have theirs.
func TestForwardedQuestionsExpire(t *testing.T) {
	s := askingServer(t)
	addTool(s, "hang", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
	sessionsWithForms(t, s, nil, func(t *testing.T, _ *mcptest.Client, h forwarder) {
		q, _, err := try(t, h, object{"name": "two"})
		if err != nil || q.RequestState == "" {
			t.Fatalf("got %+v, %v, want questions", q, err)
		}
		began := time.Now()
		if _, _, err := try(t, h, object{"name": "hang"}); err == nil || time.Since(began) != time.Minute {
			t.Errorf("another call: got %v after %v, want an error after a minute", err, time.Since(began))
		}
		if u := h.Usage(); u != (driver.ForwardUsage{InProgress: 1, Suspended: 1}) {
			t.Errorf("usage: got %+v, want the suspended call", u)
		}
		time.Sleep(10*time.Minute - time.Since(began))
		synctest.Wait()
		if u := h.Usage(); u != (driver.ForwardUsage{}) {
			t.Errorf("usage: got %+v, want none", u)
		}
		_, _, err = try(t, h, object{"name": "two", "requestState": q.RequestState})
		wantInvalidParams(t, "expired state", err, "expired")
	})
}

// Package host forwards a request under another name, for a caller of its own, and ends what a
// caller has left behind.
func TestForwardAs(t *testing.T) {
	s := askingServer(t)
	var got string
	addTool(s, "original", func(ctx context.Context) (string, error) {
		own, _ := mcp.RequestFrom(ctx).Meta("com.example/own")
		got = string(own)
		return "", nil
	})
	for _, on := range mcptest.Combinations() {
		synctest.Test(t, func(t *testing.T) {
			h := mcp.Forward(mcptest.Dial(t, s, on, &mcp.ClientOptions{ForwardInput: true})).(forwarder)
			req := forwardedRequest(t, object{"name": "public__two"})
			before := string(req.Params)
			as := func(caller, name string) (asked, error) {
				opts := &driver.ForwardOptions{Principal: "ann", Caller: caller, Subject: name}
				res, err := h.ForwardAs(t.Context(), req, opts)
				raw, _ := res.(mcp.RawResult)
				if err != nil {
					return asked{}, err
				}
				return decode[asked](t, json.RawMessage(raw)), nil
			}
			if _, err := as("one", "original"); err != nil || got != "" || string(req.Params) != before {
				t.Errorf("%s: got %q, %v, want the request under its original name", on, got, err)
			}
			if ends := h.Done() != nil; ends != (on.Revision != mcptest.Modern || on.Transport == mcptest.Stdio) {
				t.Errorf("%s: a channel for the end of the connection: got %t", on, ends)
			}
			if on.Revision == mcptest.Modern || !on.Since("2025-06-18") {
				return
			}
			if q, err := as("one", "two"); err != nil || q.RequestState == "" {
				t.Errorf("%s: got %+v, %v, want questions", on, q, err)
			}
			if h.Abandon("two"); h.Usage().Suspended != 1 {
				t.Errorf("%s: got %+v, want the call of the other caller", on, h.Usage())
			}
			h.Abandon("one")
			if synctest.Wait(); h.Usage() != (driver.ForwardUsage{}) {
				t.Errorf("%s: got %+v, want nothing", on, h.Usage())
			}
		})
	}
}

// A server of 2025-11-25 may require pages in an error, which is a question for other revisions.
func TestForwardedErrorThatRequiresPages(t *testing.T) {
	for capability, wantCode := range map[string]int{"url": 0, "form": driver.CodeMissingRequiredClientCapability} {
		synctest.Test(t, func(t *testing.T) {
			client, server := mcp.Pipe()
			calls := 0
			go respondTo(server, func(m *jsonrpc.Message) *jsonrpc.Message {
				switch {
				case m.Method == "initialize":
					return &jsonrpc.Message{ID: m.ID, Result: json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
						`"serverInfo":{"name":"s","version":"1"}}`)}

				case m.Method == "tools/call" && calls == 0:
					calls++
					return &jsonrpc.Message{ID: m.ID, Error: &mcp.Error{Code: -32042, Message: "visit", Data: json.RawMessage(
						`{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"e1"}]}`)}}

				}
				calls++
				return &jsonrpc.Message{ID: m.ID, Result: json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`)}
			})
			upstream, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client),
				&mcp.ClientOptions{Revision: "2025-11-25", ForwardInput: true, Logger: discardLogger()})
			if err != nil {
				t.Fatal(err)
			}
			defer upstream.Close()
			visited := ""
			c := mcptest.Connect(t, mcp.Forward(upstream), mcptest.Combination{Transport: mcptest.HTTP, Revision: mcptest.Modern},
				&mcptest.Options{Capabilities: object{"elicitation": object{capability: object{}}}, Timeout: time.Minute,
					Answer: func(_ string, params json.RawMessage) (any, error) {
						visited = decode[struct{ URL string }](t, params).URL
						return object{"action": "accept"}, nil
					}})
			raw, failure := c.Try("tools/call", object{"name": "t"})
			if wantCode != 0 {
				wantCodeAndNoVisit(t, failure, wantCode, visited)
				return
			}
			if failure != nil || decode[toolResult](t, raw).text() != "done" || visited != "https://a.example/" || calls != 2 {
				t.Errorf("got %s, %v after %d calls and a visit of %q", raw, failure, calls, visited)
			}
		})
	}
}

func wantCodeAndNoVisit(t *testing.T, err *mcp.Error, code int, visited string) {
	t.Helper()
	wantCode(t, "client without pages", err, code)
	if visited != "" {
		t.Errorf("the client visited %s without the capability", visited)
	}
}

// respondTo serves the requests of a Conn until it ends.
func respondTo(conn mcp.Conn, respond func(*jsonrpc.Message) *jsonrpc.Message) {
	for {
		m, err := conn.Read(context.Background())
		if err != nil {
			return
		}
		if m.Kind() == jsonrpc.Request {
			_ = conn.Write(context.Background(), respond(m))
		}
	}
}
