package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A server without features has server/discover. Its result has the members of the specification.
//
// Requirement: VER-01, VER-02
func TestDiscoverResult(t *testing.T) {
	s := mcp.NewServer("test", "7", &mcp.ServerOptions{Instructions: "Be brief."})
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		raw := c.Call("server/discover", nil)
		var members map[string]json.RawMessage
		var got struct {
			SupportedVersions []string
			Capabilities      map[string]any
			TTLMs             *int64
			CacheScope        string
			ResultType        string
			Instructions      string
			Meta              map[string]struct{ Name, Version string } `json:"_meta"`
		}
		if err := errors.Join(json.Unmarshal(raw, &members), json.Unmarshal(raw, &got)); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		if !slices.Contains(got.SupportedVersions, mcptest.Modern) || got.Capabilities == nil || got.TTLMs == nil ||
			got.CacheScope == "" || got.ResultType != "complete" || got.Instructions != "Be brief." {
			t.Errorf("result of server/discover: %s", raw)
		}
		if info := got.Meta["io.modelcontextprotocol/serverInfo"]; info.Name != "test" || info.Version != "7" ||
			members["serverInfo"] != nil {
			t.Errorf("the identity is not in _meta alone: %s", raw)
		}
	})
}

// Requests without an earlier server/discover are served.
//
// Requirement: VER-03
func TestDiscoverIsOptional(t *testing.T) {
	var methods []string
	s := mcp.NewServer("test", "1", &mcp.ServerOptions{Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			methods = append(methods, req.Method)
			return next.ServeMCP(ctx, req)
		})
	}}})
	mcp.AddTool(s, &mcp.Tool{Name: "x"}, func(context.Context, struct{}) (string, error) { return "done", nil })
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		methods = nil
		if got := string(c.Call("tools/call", map[string]any{"name": "x"})); !strings.Contains(got, "done") {
			t.Errorf("result %s", got)
		}
		if !slices.Equal(methods, []string{"tools/call"}) {
			t.Errorf("the server got %q, want tools/call only", methods)
		}
	})
}

// dialLineServer connects to a server that calls respond for each request, and returns the methods
// that the server received. respond returns a member "result" or "error", or "" for no response.
func dialLineServer(t *testing.T, opts *mcp.ClientOptions, respond func(method string) string) (
	c *mcp.Client, methods func() []string, err error) {
	t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	var mu sync.Mutex
	var received []string
	go func() {
		defer toClient.Close()
		lines := bufio.NewScanner(fromClient)
		for lines.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			received = append(received, m.Method)
			mu.Unlock()
			if member := respond(m.Method); m.ID != nil && member != "" {
				if _, err := io.WriteString(toClient, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,`+member+"}\n"); err != nil {
					return
				}
			}
		}
	}()
	t.Cleanup(func() { toServer.Close(); fromServer.Close() })
	o := *opts
	o.Logger = slog.New(slog.DiscardHandler)
	c, err = mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(fromServer, toServer, nil)), &o)
	return c, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(received)
	}, err
}

// A client of both eras probes once, before any other request, and then keeps to the era.
//
// Requirement: VER-09, VER-18
func TestProbeComesFirstAndOnce(t *testing.T) {
	for era, test := range map[string]struct {
		discover string
		want     string
	}{
		"modern": {`"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`,
			"server/discover tools/call tools/call"},
		"legacy": {`"error":{"code":-32601,"message":"method not found"}`,
			"server/discover initialize notifications/initialized tools/call tools/call"},
	} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, methods, err := dialLineServer(t, &mcp.ClientOptions{}, func(method string) string {
					switch method {
					case "server/discover":
						return test.discover
					case "initialize":
						return `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},` +
							`"serverInfo":{"name":"s","version":"1"}}`
					}
					return `"result":{"resultType":"complete","content":[]}`
				})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
						t.Error(err)
					}
				}
				if got := strings.Join(methods(), " "); got != test.want {
					t.Errorf("the server got %s, want %s", got, test.want)
				}
				c.Close()
			})
		})
	}
}

// A client of the modern revision alone probes too, and fails with a server of sessions.
//
// Requirement: VER-14
func TestModernClientProbesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, methods, err := dialLineServer(t, &mcp.ClientOptions{Revision: mcptest.Modern},
			func(string) string { return `"error":{"code":-32601,"message":"method not found"}` })
		if !errors.Is(err, mcp.ErrNoCommonRevision) {
			t.Errorf("Connect: %v, want ErrNoCommonRevision", err)
		}
		if got := methods(); !slices.Equal(got, []string{"server/discover"}) {
			t.Errorf("the server got %q, want server/discover only", got)
		}
	})
}

// A request that gets no response fails after its timeout, and the server gets its cancellation. The
// timeout is that of the call, or that of the client, or one minute.
//
// Requirement: LIFE-16, LIFE-17, LIFE-18
func TestTimeoutsCancelTheRequest(t *testing.T) {
	for name, test := range map[string]struct {
		client, call, want time.Duration
	}{
		"default": {0, 0, time.Minute}, "client": {5 * time.Second, 0, 5 * time.Second},
		"call": {5 * time.Second, 2 * time.Second, 2 * time.Second},
	} {
		for _, combination := range mcptest.Before(mcptest.Modern) {
			t.Run(name+" "+combination.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cause := make(chan error, 1)
					s := mcp.NewServer("test", "1", nil)
					mcp.AddTool(s, &mcp.Tool{Name: "x"}, func(ctx context.Context, _ struct{}) (string, error) {
						<-ctx.Done()
						cause <- context.Cause(ctx)
						return "", ctx.Err()
					})
					c := mcptest.Dial(t, s, combination, &mcp.ClientOptions{Timeout: test.client})
					ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Timeout: test.call})
					start := time.Now()
					_, err := c.CallTool(ctx, "x", nil)
					if took := time.Since(start); !errors.Is(err, mcp.ErrTimeout) || took != test.want {
						t.Errorf("error %v after %v, want ErrTimeout after %v", err, took, test.want)
					}
					if err := <-cause; !errors.Is(err, mcp.ErrCancelled) {
						t.Errorf("cancellation cause of the handler: %v, want ErrCancelled", err)
					}
				})
			})
		}
	}
}
