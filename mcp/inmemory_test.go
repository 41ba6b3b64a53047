package mcp_test

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A handler in memory sees the envelope that its request has, whoever has changed it on the way.
func TestInMemoryTheEnvelopeIsThatOfTheParams(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: quiet()})
	mcp.AddTool(s, &mcp.Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.RequestFrom(ctx).ClientInfo().Name, nil
	})
	change := func(raw stdjson.RawMessage) stdjson.RawMessage { return raw }
	opts := &mcp.ClientOptions{Info: mcp.Implementation{Name: "alice", Version: "1"}, Middleware: []mcp.Middleware{
		func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				req.Params = change(req.Params)
				return next.ServeMCP(ctx, req)
			})
		},
	}}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call := func(level mcp.LoggingLevel) (string, error) {
		return mcp.CallTool[string](mcp.WithCallOptions(t.Context(), mcp.CallOptions{LogLevel: level}), c, "who", nil)
	}
	if got, err := call(""); got != "alice" || err != nil {
		t.Errorf("unchanged: %q, %v", got, err)
	}
	if got, err := call(mcp.LevelInfo); got != "alice" || err != nil {
		t.Errorf("with a log level: %q, %v", got, err)
	}
	var refused *mcp.Error
	if got, err := call("loud"); !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
		t.Errorf("with a log level that there is not: %q, %v", got, err)
	}
	for _, with := range []string{`"bobby"`, `"bob"`} {
		change = func(raw stdjson.RawMessage) stdjson.RawMessage {
			return bytes.Replace(raw, []byte(`"alice"`), []byte(with), 1)
		}
		if got, err := call(""); `"`+got+`"` != with || err != nil {
			t.Errorf("changed to %s: %q, %v", with, got, err)
		}
	}
	change = func(stdjson.RawMessage) stdjson.RawMessage { return stdjson.RawMessage(`{"name":"who"}`) }
	if got, err := call(""); !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
		t.Errorf("without an envelope: %q, %v", got, err)
	}
}

// A request that no client has made is opened.
func TestInMemoryRequestsByHandAreServed(t *testing.T) {
	transport := mcp.InMemory(mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: quiet()}))
	defer transport.Close()
	params := fmt.Sprintf(`{"_meta":`+modernMeta+`}`, `{}`)
	for params, ok := range map[string]bool{params: true, `{"_meta":{}}`: false, `{}`: false} {
		res, err := transport.RoundTrip(t.Context(), &mcp.Request{Method: "server/discover", Params: stdjson.RawMessage(params)})
		if (err == nil) != ok {
			t.Errorf("%s: got %v, %v", params, res, err)
		}
	}
}
