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

// Middleware may change the params, and with them the envelope.
//
// Requirement: META-18
func TestInMemoryRequestsHaveTheEnvelopeOfTheirParams(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger()})
	mcp.AddTool(s, &mcp.Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.RequestFrom(ctx).ClientInfo().Name, nil
	})
	changeParams := func(raw stdjson.RawMessage) stdjson.RawMessage { return raw }
	opts := &mcp.ClientOptions{Info: mcp.Implementation{Name: "alice", Version: "1"}, Middleware: []mcp.Middleware{
		func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				req.Params = changeParams(req.Params)
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
		t.Errorf("unchanged: got %q, %v, want alice", got, err)
	}
	if got, err := call("info"); got != "alice" || err != nil {
		t.Errorf("with a log level: got %q, %v, want alice", got, err)
	}
	var protocolErr *mcp.Error
	if got, err := call("loud"); !errors.As(err, &protocolErr) || protocolErr.Code != mcp.CodeInvalidParams {
		t.Errorf("unknown log level: got %q, %v, want code -32602", got, err)
	}
	for _, with := range []string{`"bobby"`, `"bob"`} {
		changeParams = func(raw stdjson.RawMessage) stdjson.RawMessage {
			return bytes.Replace(raw, []byte(`"alice"`), []byte(with), 1)
		}
		if got, err := call(""); `"`+got+`"` != with || err != nil {
			t.Errorf("changed to %s: got %q, %v", with, got, err)
		}
	}
	changeParams = func(stdjson.RawMessage) stdjson.RawMessage { return stdjson.RawMessage(`{"name":"who"}`) }
	if got, err := call(""); !errors.As(err, &protocolErr) || protocolErr.Code != mcp.CodeInvalidParams {
		t.Errorf("without an envelope: got %q, %v, want code -32602", got, err)
	}
}

// RoundTrip accepts requests that no Client has made.
func TestInMemoryRoundTripValidatesTheEnvelope(t *testing.T) {
	transport := mcp.InMemory(mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger()}))
	defer transport.Close()
	params := fmt.Sprintf(`{"_meta":`+modernMeta+`}`, `{}`)
	for params, valid := range map[string]bool{params: true, `{"_meta":{}}`: false, `{}`: false} {
		res, err := transport.RoundTrip(t.Context(), &mcp.Request{Method: "server/discover",
			Params: stdjson.RawMessage(params)})
		if (err == nil) != valid {
			t.Errorf("%s: got %v, %v, want valid %v", params, res, err, valid)
		}
	}
}
