package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestTracePassesEveryMessage(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "work", func(ctx context.Context) (string, error) {
		mcp.Progress(ctx, 1, 2, "half")
		sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		return fmt.Sprint(sure), err
	})
	for _, on := range mcptest.Since("2025-06-18") {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var frames []string
				transport := mcp.Trace(mcptest.Transport(t, s, on.Transport), func(f mcp.Frame) {
					if f.Message != nil {
						frames = append(frames, fmt.Sprintf("%t %s", f.Sent, jsonrpc.Append(nil, f.Message)))
					}
				})
				c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: on.Revision,
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
					}})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
				if _, err := c.CallTool(ctx, "work", nil); err != nil {
					t.Fatal(err)
				}
				want := []string{`true .*"method":"initialize"`, `false .*"serverInfo"`, "true .*notifications/initialized",
					"true .*tools/call", "false .*notifications/progress", "false .*elicitation/create",
					`true .*"result":{.*"action":"accept"`, `false .*"text":"true"`}
				if on.Modern() {
					want = []string{"true .*server/discover", "false .*supportedVersions", "true .*tools/call",
						"false .*notifications/progress", "false .*input_required", "true .*inputResponses",
						`false .*"text":"true"`}
				}
				wantInOrder(t, frames, want)
			})
		})
	}
}

// wantInOrder tests that all texts occur in this order, each with its words in order.
func wantInOrder(t *testing.T, texts, want []string) {
	t.Helper()
	at := 0
	for _, w := range want {
		matches := func(text string) bool {
			for part := range strings.SplitSeq(w, ".*") {
				_, after, ok := strings.Cut(text, part)
				if !ok {
					return false
				}
				text = after
			}
			return true
		}
		next := slices.IndexFunc(texts[at:], matches)
		if next < 0 {
			t.Fatalf("no %s after frame %d of\n%s", w, at, strings.Join(texts, "\n"))
		}
		at += next + 1
	}
}

func TestTraceHidesHeadersThatMayBeSecret(t *testing.T) {
	answer := func(r *http.Request) (*http.Response, error) {
		rec := &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: r,
			Header: http.Header{"Set-Cookie": {"key=secret"}, "Mcp-Session-Id": {"secret"}, "Www-Authenticate": {"Bearer"}}}
		return rec, nil
	}
	var frames []mcp.Frame
	transport := mcp.Trace(mcphttp.NewTransport("https://user:secret@example.com/mcp", &mcphttp.TransportOptions{
		Client: &http.Client{Transport: roundTripFunc(answer)},
		Header: http.Header{"X-Api-Key": {"secret"}, "Cookie": {"a=secret"}},
	}), func(f mcp.Frame) { frames = append(frames, f) })
	if _, err := mcp.Connect(t.Context(), transport, nil); err == nil {
		t.Fatal("got no error, want status 401")
	}
	if len(frames) != 2 || !frames[0].Sent || frames[0].Message == nil || frames[1].Status != 401 || frames[1].Sent {
		t.Fatalf("got %+v, want a request and its response", frames)
	}
	for _, f := range frames {
		if text := fmt.Sprint(f.Header); strings.Contains(text, "secret") || f.Method != "POST" {
			t.Errorf("got %s %s, want POST and no secrets", f.Method, text)
		}
	}
	if got := frames[1].Header["Www-Authenticate"]; !slices.Equal(got, []string{"Bearer"}) {
		t.Errorf("WWW-Authenticate: got %q", got)
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type customTransport struct{ mcp.Transport }

// A later Trace adds a function.
func TestTraceAddsFunctions(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "work", func(context.Context) (string, error) { return "", nil })
	for _, on := range mcptest.Since("2025-11-25") {
		t.Run(on.String(), func(t *testing.T) {
			var calls []string
			transport := mcptest.Transport(t, s, on.Transport)
			for _, name := range []string{"first", "second"} {
				transport = mcp.Trace(transport, func(f mcp.Frame) {
					if f.Sent && f.Message != nil && f.Message.Method == "tools/call" {
						calls = append(calls, name)
					}
				})
			}
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: on.Revision})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.CallTool(t.Context(), "work", nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(calls, []string{"first", "second"}) {
				t.Errorf("got %v, want both functions in their order", calls)
			}
		})
	}
}

func TestTracePanicsForTransportThatCannotBeTraced(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "missing method Trace") {
			t.Errorf("got panic %q", text)
		}
	}()
	mcp.Trace(customTransport{mcp.InMemory(newServer(t, nil))}, func(mcp.Frame) {})
}
