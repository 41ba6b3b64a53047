package mcphttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// FuzzTransportResponse responds to every request with the same bytes and closes the connection. Each
// kind of request returns in a limited time, with a JSON object, an error of the server or a
// TransportError.
func FuzzTransportResponse(f *testing.F) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, seed := range []string{
		"", "HTTP/1.1 500 x\r\n\r\n", ok + "Content-Length: 5\r\n\r\nhello",
		ok + "Content-Type: application/json\r\nContent-Length: 38\r\n\r\n" + `{"jsonrpc":"2.0","id":1,"result":{} }  `,
		ok + "Content-Type: application/json\r\n\r\n" + `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
		ok + "Content-Type: text/event-stream\r\n\r\n" + "id: 1\nretry: 1\ndata:\n\n" +
			`data: {"jsonrpc":"2.0","id":1,"result":{}}` + "\n\n",
		ok + "Content-Type: text/event-stream\r\n\r\n" + "id: 1\nretry: 1\ndata:\n\n",
		ok + "Content-Type: text/event-stream\r\n\r\n" + "event: endpoint\ndata: /x\n\n" +
			`data: {"jsonrpc":"2.0","id":1,"result":{}}` + "\n\n",
		"HTTP/1.1 405 x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 307 x\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 404 x\r\nContent-Type: application/json\r\n\r\n" +
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":""}}`,
		ok + "Mcp-Session-Id: s\r\nContent-Type: application/json\r\n\r\n" +
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26"}}`,
		ok + "Content-Encoding: gzip\r\nContent-Type: application/json\r\n\r\n\x1f\x8b\x08",
		ok + "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n5\r\n{\"a\":\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		if len(response) > 64<<10 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			dial := func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go respondWith(server, response)
				return client, nil
			}
			client := &http.Client{Transport: &http.Transport{DialContext: dial}}
			tr := mcphttp.NewTransport("http://localhost/mcp",
				&mcphttp.TransportOptions{Client: client, Logger: discardLogger})
			req := modernRequest(t, "tools/call", `"name":"x"`)
			req.Notify = func(_ context.Context, method string, params json.RawMessage) error {
				if method == "" || len(params) == 0 || params[0] != '{' {
					t.Errorf("got notification %q %s, want a method and an object", method, params)
				}
				return nil
			}
			res, err := tr.RoundTrip(t.Context(), req)
			raw, _ := res.(mcp.RawResult)
			checkOutcome(t, raw, err)
			fuzzSession(t, tr)
			began := time.Now()
			tr.Close()
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("Close took %v, want at most 10s", d)
			}
			client.CloseIdleConnections()
		})
	})
}

func fuzzSession(t *testing.T, tr *mcphttp.Transport) {
	conn, err := tr.OpenSession(t.Context(), func(m *jsonrpc.Message) {
		if m == nil {
			return // notifications may have been missed
		}
		if kind := m.Kind(); kind != jsonrpc.Request && kind != jsonrpc.Notification {
			t.Errorf("got a %v, want a request or a notification", kind)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, method := range []string{"initialize", "tools/call"} {
		m, err := conn.RoundTrip(ctx, &jsonrpc.Message{Method: method, Params: json.RawMessage(`{}`)})
		if m != nil && m.Error != nil && err == nil {
			err = m.Error
		}
		if m != nil && err == nil && m.Result == nil {
			t.Error("got a response without a result")
		}
		checkOutcome(t, mcp.RawResult(`{}`), err)
		_ = conn.Send(ctx, &jsonrpc.Message{Method: "notifications/initialized"})
	}
	if ctx.Err() != nil {
		t.Error("the requests took an hour")
	}
}

func checkOutcome(t *testing.T, raw mcp.RawResult, err error) {
	remote, failed := (*mcp.Error)(nil), (*mcp.TransportError)(nil)
	switch {
	case err == nil:
		if !json.Valid(raw) || raw[0] != '{' {
			t.Errorf("got %s, want a JSON object", raw)
		}
	case errors.As(err, &failed):
	case !errors.As(err, &remote) || !remote.Remote():
		t.Errorf("got %v (%T), want a TransportError or an error of the server", err, err)
	}
}

// respondWith reads a request, writes the response and closes the connection.
func respondWith(conn net.Conn, response []byte) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, req.Body)
	_, _ = conn.Write(response)
}
