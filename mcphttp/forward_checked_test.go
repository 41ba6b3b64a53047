package mcphttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A result that the transport has checked is not scanned again. Nothing but that result escapes the
// check, and it is put on one line.
func TestForwardedResultIsCheckedUnlessTheTransportHas(t *testing.T) {
	oneLine := strings.NewReplacer("\n", " ", "\r", " ")
	const sent = "{\"resultType\":\"complete\",\n\"content\":[\r\n]}"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		result := sent
		if m.Method == "server/discover" {
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	defer server.Close()
	for name, test := range map[string]struct {
		replace func(raw mcp.RawResult) mcp.RawResult
		want    string
	}{
		"of the transport":          {func(raw mcp.RawResult) mcp.RawResult { return raw }, oneLine.Replace(sent)},
		"shortened by middleware":   {func(raw mcp.RawResult) mcp.RawResult { return raw[:len(raw)-1] }, ""},
		"of middleware and invalid": {func(mcp.RawResult) mcp.RawResult { return mcp.RawResult(`{"content":[}`) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(server.URL, nil), &mcp.ClientOptions{
				Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
					return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
						res, err := next.ServeMCP(ctx, req)
						if raw, ok := res.(mcp.RawResult); ok {
							res = test.replace(raw)
						}
						return res, err
					})
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			msg, err := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{` +
				`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
			if err != nil {
				t.Fatal(err)
			}
			req, err := mcp.NewRequest(msg)
			if err != nil {
				t.Fatal(err)
			}
			got, refused := mcp.Driver(mcp.Forward(c)).AppendResult(nil, t.Context(), req)
			if string(got) != test.want || (refused == nil) != (test.want != "") {
				t.Errorf("result %s, error %v; want %q", got, refused, test.want)
			}
		})
	}
}

// A long result reaches the client on one line, whether or not the server sent it so.
func TestLongForwardedResultIsOnOneLine(t *testing.T) {
	oneLine := strings.NewReplacer("\n", " ", "\r", " ")
	text := strings.Repeat(`a\né `, 10_000)
	for name, sent := range map[string]string{
		"one line":      `{"resultType":"complete","content":[{"type":"text","text":"` + text + `"}]}`,
		"several lines": "{\"resultType\":\"complete\",\n\"content\":[{\"type\":\"text\",\r\n\"text\":\"" + text + "\"}]}",
		"no type":       `{"content":[{"type":"text","text":"` + text + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				m, err := jsonrpc.Decode(body)
				if err != nil {
					t.Error(err)
					return
				}
				result := sent
				if m.Method == "server/discover" {
					result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
			}))
			defer server.Close()
			c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(server.URL, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			f := start(t, mcp.Forward(c), nil)
			body, headers := modernCall("tools/call", `"name":"a"`)
			got := f.do(http.MethodPost, body, headers...)
			want := oneLine.Replace(sent)
			if name == "no type" {
				want = `{"resultType":"complete",` + want[1:]
			}
			if m, err := jsonrpc.Decode([]byte(got.body)); err != nil || string(m.Result) != want {
				t.Errorf("got status %d, %d bytes %.200s, %v, want %d bytes", got.status, len(got.body), got.body, err, len(want))
			}
		})
	}
}
