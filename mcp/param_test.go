package mcp_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestParamReadsTheCurrentParams(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"name":"no"}`
	msg, err := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name": "a","level":[1],` + meta + `,"arguments":{"name":"b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req, err := mcp.NewRequest(msg)
	if err != nil {
		t.Fatal(err)
	}
	check := func(key, want string) {
		t.Helper()
		if got, ok := req.Param(key); string(got) != want || ok != (want != "") {
			t.Errorf("%s: got %q, %t, want %q", key, got, ok, want)
		}
	}
	check("name", `"a"`)
	check("arguments", `{"name":"b"}`)
	check("level", `[1]`)
	check("uri", "")
	check("b", "")
	req.Params = []byte(`{"name":"c","uri":"u:"}`)
	check("name", `"c"`)
	check("uri", `"u:"`)
	check("arguments", "")
	req.Params = nil
	check("name", "")
}
