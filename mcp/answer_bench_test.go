package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const benchEnvelope = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}`

const benchArguments = `{"query":"rain in Berlin","limit":20,"ratio":0.75,"exact":true,"tags":["a","weather"],` +
	`"filter":{"from":"2026-01-01","days":3,"size":1.5}}`

var benchList = []byte(`{"jsonrpc":"2.0","id":100000000,"method":"tools/list","params":{` + benchEnvelope + `}}`)

type benchEcho struct {
	Message string `json:"message" jsonschema:"the text to return"`
}

type benchMixed struct {
	Query  string   `json:"query"`
	Limit  int      `json:"limit,omitempty"`
	Ratio  float64  `json:"ratio"`
	Exact  bool     `json:"exact"`
	Tags   []string `json:"tags"`
	Filter struct {
		From string  `json:"from"`
		Days *int    `json:"days"`
		Size float64 `json:"size"`
	} `json:"filter"`
}

func benchServer(tools int) *mcp.Server {
	s := mcp.NewServer("patchbay", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in benchEcho) (string, error) {
		return in.Message, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "size"}, func(_ context.Context, in benchEcho) (string, error) {
		return fmt.Sprint(len(in.Message)), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "mixed"}, func(_ context.Context, in benchMixed) (string, error) {
		return in.Query, nil
	})
	mega := strings.Repeat("0123456789abcdef", 1<<16)
	mcp.AddTool(s, &mcp.Tool{Name: "mega"}, func(context.Context, struct{}) (string, error) { return mega, nil })
	for i := range tools {
		mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("tool%04d", i), Description: "returns its query"},
			func(_ context.Context, in benchMixed) (string, error) { return in.Query, nil })
	}
	return s
}

func benchCall(tool, arguments string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":100000000,"method":"tools/call","params":{` + benchEnvelope +
		`,"name":"` + tool + `","arguments":` + arguments + `}}`)
}

// answer decodes a request, serves it, and returns dst with the encoded response.
func answer(tb testing.TB, dst []byte, s *mcp.Server, msg []byte) []byte {
	m, err := jsonrpc.Decode(msg)
	if err != nil {
		tb.Fatal(err)
	}
	req, err := mcp.NewRequest(m)
	if err != nil {
		tb.Fatal(err)
	}
	out, fault := mcp.AppendResponse(dst, context.Background(), s, req)
	if fault != nil {
		tb.Fatal(fault)
	}
	return out
}

func BenchmarkAnswer(b *testing.B) {
	s := benchServer(0)
	mebibyte := strings.Repeat("0123456789abcdef", 1<<16)
	for _, c := range []struct {
		name   string
		server *mcp.Server
		msg    []byte
		want   string
	}{
		{"echo", s, benchCall("echo", `{"message":"hello, how are you today"}`), "hello, how are"},
		{"mixed", s, benchCall("mixed", benchArguments), "rain in Berlin"},
		{"1MiB argument", s, benchCall("size", `{"message":"`+mebibyte+`"}`), "1048576"},
		{"1MiB echo", s, benchCall("echo", `{"message":"`+mebibyte+`"}`), "0123456789"},
		{"1MiB result", s, benchCall("mega", `{}`), "0123456789"},
		{"list of 50", benchServer(46), benchList, "tool0045"},
		{"list of 1000", benchServer(996), benchList, "tool0995"},
	} {
		b.Run(c.name, func(b *testing.B) {
			dst := make([]byte, 0, 4<<10)
			b.ReportAllocs()
			for b.Loop() {
				dst = answer(b, dst[:0], c.server, c.msg)
			}
			if !bytes.Contains(dst, []byte(c.want)) {
				b.Fatalf("got %.300s, want a response with %s", dst, c.want)
			}
		})
	}
}
