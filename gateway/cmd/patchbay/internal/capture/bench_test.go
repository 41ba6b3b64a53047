package capture_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A tracedTransport passes the function of mcp.Trace to a benchmark.
type tracedTransport struct {
	mcp.Transport
	frame func(mcp.Frame)
}

func (t *tracedTransport) Trace(f func(mcp.Frame)) { t.frame = f }

// An answering transport answers each HTTP request at once.
type answering struct{ header http.Header }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: a.header, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// BenchmarkCall measures the recording of a call without the call: its two records, and the message and the
// HTTP request of each direction at the server. The row gateway-capture of bench compares whole calls.
func BenchmarkCall(b *testing.B) {
	const (
		meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"client","version":"1.0.0"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
		content = `[{"type":"text","text":"hello, hello, hello, hello"}]`
	)
	arguments := json.RawMessage(`{"text":"hello, hello, hello, hello"}`)
	params := json.RawMessage(`{"name":"echo","arguments":` + string(arguments) + `,` + meta + `}`)
	result := json.RawMessage(`{"resultType":"complete","content":` + content + `}`)
	sent := http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"},
		"Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"}, "Mcp-Protocol-Version": {"2026-07-28"}}
	received := http.Header{"Content-Type": {"application/json"}, "Date": {"Mon, 30 Nov 2026 12:00:00 GMT"},
		"Content-Length": {"84"}, "Vary": {"Origin"}, "Cache-Control": {"no-store"}}
	for name, opts := range map[string]*capture.Options{"summaries": nil, "always": {Always: true}} {
		b.Run(name, func(b *testing.B) {
			ring := capture.New(opts)
			ring.SetMask(func(text string) string { return strings.ReplaceAll(text, "s3cret", "[secret]") })
			transport, client := &tracedTransport{}, (*http.Client)(nil)
			dial := ring.Dial(func(ctx context.Context, _ *config.Server) (mcp.Transport, error) {
				client = capture.Observe(ctx, &http.Client{Transport: answering{received}}, nil)
				return transport, nil
			})
			if _, err := dial(b.Context(), &config.Server{Name: "srv"}); err != nil {
				b.Fatal(err)
			}
			recorder := ring.Recorder(nil)
			caller := &policy.Caller{Principal: &mcp.Principal{Subject: "ann"}}
			b.ReportAllocs()
			for n := int64(1); b.Loop(); n++ {
				r := event.Record{Event: event.Intent, Call: strconv.FormatInt(n, 10), Method: "tools/call",
					Start: time.Now(), Public: "srv__echo",
					Action: policy.Action{Server: "srv", Target: "echo", Arguments: arguments, Caller: caller}}
				_ = recorder.Record(&r)
				transport.frame(mcp.Frame{Sent: true, Method: http.MethodPost, Header: sent,
					Message: &jsonrpc.Message{ID: jsonrpc.IntID(n), Method: "tools/call", Params: params}})
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://127.0.0.1:1/mcp",
					strings.NewReader(`{"jsonrpc":"2.0","id":`+strconv.FormatInt(n, 10)+`,"method":"tools/call"}`))
				if err != nil {
					b.Fatal(err)
				}
				req.Header = sent
				res, err := client.Transport.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				transport.frame(mcp.Frame{Method: http.MethodPost, Status: http.StatusOK, Header: received,
					Message: &jsonrpc.Message{ID: jsonrpc.IntID(n), Result: result}})
				r.Event, r.Result = event.End, result
				_ = recorder.Record(&r)
			}
		})
	}
}
