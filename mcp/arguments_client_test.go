package mcp_test

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// An argumentsTransport stores the arguments of the last request.
type argumentsTransport struct{ last stdjson.RawMessage }

func (t *argumentsTransport) RoundTrip(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method == "server/discover" {
		return mcp.RawResult(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`), nil
	}
	t.last, _ = req.Param("arguments")
	return mcp.RawResult(`{"content":[]}`), nil
}

func (t *argumentsTransport) Close() error { return nil }

// The client encodes arguments of common types itself. The result must equal that of the JSON
// package.
func TestArgumentsAreEncodedAsByTheJSONPackage(t *testing.T) {
	transport := &argumentsTransport{}
	c, err := mcp.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	check := func(t *testing.T, args any) {
		t.Helper()
		want, wantErr := json.Marshal(args, json.Deterministic(true))
		if _, err := c.CallTool(t.Context(), "x", args); (err != nil) != (wantErr != nil) {
			t.Errorf("%v: got error %v, want %v", args, err, wantErr)
		} else if err == nil && string(transport.last) != string(want) {
			t.Errorf("%v: got %s, want %s", args, transport.last, want)
		}
	}
	sorted := map[string]any{}
	for i := range 20 {
		sorted[strings.Repeat("k", i)] = i
	}
	for _, value := range []any{
		nil, true, false, "", "plain", "ünï \"\\/\b\f\n\r\t\x00\x1f\x7f<>& 😀", "bad \xff",
		0, -1, math.MinInt, int64(7), uint8(8), 0.0, math.Copysign(0, -1), 1.5, -2.25e-6, 1e-6, 9e-7, 1e20, 1e21,
		123456789012345678.0, math.MaxFloat64, math.NaN(), math.Inf(1), float32(0.1), []any(nil), []any{},
		[]any{1, "a", []any{nil}, map[string]any{"z": 1, "a": 2, "": []any{}}}, map[string]any(nil),
		map[string]any{}, sorted, map[string]string{"b": "1", "a": "2"}, []string{"a"}, struct{ A int }{1},
		stdjson.Number("12"),
		stdjson.RawMessage(` {"x" : 1} `), []byte("bytes"), nestedList(10), nestedList(40),
	} {
		check(t, map[string]any{"value": value, "another": "one"})
	}
	check(t, map[string]any{"bad \xff": 1})
	check(t, map[string]any{})
	check(t, stdjson.RawMessage(`{"a":1}`))
	check(t, stdjson.RawMessage(" \r\n\t{\"a\":1} \n")) // surrounding white space is removed
	check(t, struct {
		B string `json:"b"`
		A int    `json:"a"`
	}{"x", 1})
}

// nestedList returns a list that is nested n levels deep.
func nestedList(n int) any {
	if n == 0 {
		return "bottom"
	}
	return []any{nestedList(n - 1)}
}

// nestedObject returns an object that is nested n levels deep.
func nestedObject(n int) any {
	if n == 0 {
		return "bottom"
	}
	return map[string]any{"a": nestedObject(n - 1)}
}

// The limits of JSON depth and size apply in memory too, where the server does not decode messages.
func TestInMemoryArgumentsHaveTheLimitsOfJSON(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger()})
	mcp.AddTool(s, &mcp.Tool{Name: "any"}, func(_ context.Context, in struct {
		Value stdjson.RawMessage `json:"value"`
	}) (string, error) {
		return string(in.Value), nil
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for depth, allowed := range map[int]bool{1: true, 15: true, 16: true, 17: true, 62: true, 63: false, 100: false} {
		for _, value := range []any{nestedList(depth), nestedObject(depth)} {
			want, _ := json.Marshal(value)
			got, err := mcp.CallTool[string](t.Context(), c, "any", map[string]any{"value": value})
			if allowed && (err != nil || !cmp.Equal(got, string(want))) {
				t.Errorf("depth %d: got %q, %v, want %q", depth, got, err, want)
			} else if !allowed {
				wantInvalid(t, err)
			}
		}
	}
	many := map[string]any{}
	for n := range 10_001 {
		many[fmt.Sprint(n)] = n
	}
	_, err = mcp.CallTool[string](t.Context(), c, "any", map[string]any{"value": many})
	wantInvalid(t, err)
}

func wantInvalid(t *testing.T, err error) {
	t.Helper()
	var protocolErr *mcp.Error
	if !errors.As(err, &protocolErr) || protocolErr.Code != mcp.CodeInvalidParams {
		t.Errorf("got error %.200v, want code %d", err, mcp.CodeInvalidParams)
	}
}

// Requests in memory reuse buffers. Arguments of an earlier request must not reach a later one.
func TestInMemoryRequestsDoNotShareArguments(t *testing.T) {
	checkArguments := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if args, ok := req.Param("arguments"); ok && req.Method == "prompts/get" {
				t.Errorf("prompts/get: got arguments %s, want none", args)
			}
			return next.ServeMCP(ctx, req)
		})
	}
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger(), Middleware: []mcp.Middleware{checkArguments}})
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in map[string]string) (string, error) {
		return in["a"], nil
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "prompt"}, func(context.Context, struct{}) (string, error) { return "", nil })
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 20 {
		got, err := mcp.CallTool[string](t.Context(), c, "echo", map[string]any{"a": "b"})
		if got != "b" || err != nil {
			t.Errorf("got %q, %v, want b", got, err)
		}
		if _, err := c.GetPrompt(t.Context(), "prompt", nil); err != nil {
			t.Error(err)
		}
	}
}
