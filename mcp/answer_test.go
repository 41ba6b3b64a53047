package mcp_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestAppendResultReturnsResultOrError(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(before)
	for name, test := range map[string]struct {
		handler mcp.HandlerFunc
		want    string
		code    int
	}{
		"result": {func(context.Context, *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{"resultType":"complete","a":1}`), nil
		}, `before{"resultType":"complete","a":1}`, 0},
		"error": {func(context.Context, *mcp.Request) (mcp.Result, error) {
			return nil, mcp.Errorf(mcp.CodeBusy, "later")
		}, "", mcp.CodeBusy},
		"hidden error": {func(context.Context, *mcp.Request) (mcp.Result, error) {
			return nil, errors.New("secret")
		}, "", mcp.CodeInternalError},
		"panic": {func(context.Context, *mcp.Request) (mcp.Result, error) { panic("secret") }, "",
			mcp.CodeInternalError},
		"invalid JSON": {func(context.Context, *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{`), nil
		}, "", mcp.CodeInternalError},
	} {
		params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{}}}`
		msg := &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/call", Params: []byte(params)}
		req, err := mcp.NewRequest(msg)
		if err != nil {
			t.Fatal(err)
		}
		got, failure := mcp.AppendResult([]byte("before"), t.Context(), test.handler, req)
		if string(got) != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
		if code := codeOf(failure); code != test.code {
			t.Errorf("%s: got code %d, want %d", name, code, test.code)
		}
	}
}

func codeOf(err *mcp.Error) int {
	if err == nil {
		return 0
	}
	return err.Code
}
