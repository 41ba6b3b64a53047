package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// On HTTP/2 a request that is given up does not close the connection, which has other streams.
func TestHTTP2_GivenUpUploadKeepsTheConnection(t *testing.T) {
	synctest.Test(t, testGivenUpUpload)
}

func testGivenUpUpload(t *testing.T) {
	core := newTestCore()
	h := mcphttp.NewHandler(mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if strings.Contains(string(req.Params), `"exit"`) {
			runtime.Goexit()
		}
		return core.ServeMCP(ctx, req)
	}), &mcphttp.Options{Logger: discardLogger, MaxBody: 1 << 20})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	listener := newMemListener()
	server := &http.Server{Handler: h, Protocols: protocols, ErrorLog: discardStdLogger}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	dialled := 0
	network := &http.Transport{Protocols: protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			dialled++
			return listener.dial()
		}}
	defer func() {
		network.CloseIdleConnections()
		_ = server.Close()
		<-served
	}()
	client := &http.Client{Transport: network}
	send := func(tool string, body io.Reader, length int64) (status, version int) {
		whole, headers := modernCall("tools/call", fmt.Sprintf(`"name":%q`, tool))
		if body == nil {
			body, length = strings.NewReader(whole), int64(len(whole))
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost:8765/", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = length
		for _, line := range append(headers, "Content-Type: application/json", "Accept: application/json, text/event-stream") {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Set(name, value)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("Connection"); got != "" {
			t.Errorf("Connection: got %q, want none", got)
		}
		return resp.StatusCode, resp.ProtoMajor
	}
	late, stop := io.Pipe()
	defer stop.Close()
	for _, test := range []struct {
		name, tool string
		body       io.Reader
		length     int64
		status     int
	}{
		{"whole", "echo", nil, 0, 200},
		{"too large", "echo", strings.NewReader(strings.Repeat("x", 2<<20)), 2 << 20, 413},
		{"too late", "echo", late, 1000, 408},
		{"handler that ends its goroutine", "exit", nil, 0, 200},
		{"whole", "echo", nil, 0, 200},
	} {
		status, version := send(test.tool, test.body, test.length)
		synctest.Wait() // net/http keeps a new connection after its first response
		if status != test.status || version != 2 {
			t.Errorf("%s: got status %d over HTTP/%d, want %d over HTTP/2", test.name, status, version, test.status)
		}
	}
	if dialled != 1 {
		t.Errorf("%d connections were opened, want 1", dialled)
	}
}
