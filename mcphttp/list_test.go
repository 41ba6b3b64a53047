package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newListServer returns a server with tools. change, if not nil, is called with each list result.
func newListServer(tools int, change func(context.Context, *mcp.Request, *mcp.ListToolsResult)) *mcp.Server {
	opts := &mcp.ServerOptions{Logger: discardLogger, PageSize: 500}
	if change != nil {
		opts.Middleware = []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				res, err := next.ServeMCP(ctx, req)
				if list, ok := res.(*mcp.ListToolsResult); ok {
					change(ctx, req, list)
				}
				return res, err
			})
		}}
	}
	s := mcp.NewServer("s", "1", opts)
	for i := range tools {
		mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("tool_%04d", i), Description: "Return the message"},
			func(context.Context, struct{}) (string, error) { return "", nil })
	}
	return s
}

// A listResponse is a response to tools/list.
type listResponse struct {
	Result struct {
		Tools      []struct{ Name string }
		NextCursor string `json:"nextCursor"`
	}
}

// check checks that the body is one message with the tools, and with a cursor if isCut.
func (l listResponse) check(t *testing.T, body string, want []string, isCut bool) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &l, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Errorf("%v in %.300s", err, body)
	}
	var names []string
	for _, tool := range l.Result.Tools {
		names = append(names, tool.Name)
	}
	if !slices.Equal(names, want) || (l.Result.NextCursor != "") != isCut {
		t.Errorf("got %d tools and the cursor %q, want %d: %.300s", len(names), l.Result.NextCursor, len(want), body)
	}
}

// The server caches encoded lists. Each response is one message with its Content-Length, for lists of
// every size, for concurrent clients, and with middleware.
func TestLists_AreComplete(t *testing.T) {
	for name, change := range map[string]func(context.Context, *mcp.Request, *mcp.ListToolsResult){
		"no change": nil,
		"shorter": func(_ context.Context, _ *mcp.Request, l *mcp.ListToolsResult) {
			clear(l.Tools[:1]) // in place
			l.Tools = l.Tools[1:]
		},
		"other hints": func(_ context.Context, _ *mcp.Request, l *mcp.ListToolsResult) { l.TTL = 7 * time.Millisecond },
		"after a notification": func(ctx context.Context, req *mcp.Request, _ *mcp.ListToolsResult) {
			_ = req.Notify(ctx, "notifications/message", []byte(`{"level":"info","data":"hello"}`))
		},
	} {
		for _, tools := range []int{3, 30, 400, 700} {
			t.Run(fmt.Sprint(name, "/", tools), func(t *testing.T) {
				core := newListServer(tools, change)
				f := start(t, core, nil)
				var want []string
				for i := range min(tools, 500) {
					want = append(want, fmt.Sprintf("tool_%04d", i))
				}
				if name == "shorter" {
					want = want[1:]
				}
				var clients sync.WaitGroup
				for range 3 {
					session := f.initialize(november2025)
					clients.Go(func() {
						for range 3 {
							listResponse{}.check(t, f.list(name == "after a notification", nil), want, tools > 500)
							listResponse{}.check(t, f.list(name == "after a notification", session), want, tools > 500)
						}
					})
				}
				clients.Wait()
			})
		}
	}
}

// list requests the tools and returns the response. A response as JSON must have a Content-Length.
func (f *fixture) list(isStream bool, s *testSession) string {
	body, headers := modernCall("tools/list", "")
	if s != nil {
		body, headers = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, s.headers
	}
	resp, err := f.client.Do(f.request(f.t.Context(), http.MethodPost, body, headers...))
	if err != nil {
		f.t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Error(err)
	}
	if !isStream {
		if length := resp.Header.Get("Content-Length"); length != strconv.Itoa(len(b)) {
			f.t.Errorf("got Content-Length %q, want %d", length, len(b))
		}
		return string(b)
	}
	events := strings.Split(string(b), "\ndata: ")
	return events[len(events)-1]
}

// A modern client receives the same bytes as a transport that requests the whole result.
func TestLists_EqualThoseOfOtherTransports(t *testing.T) {
	for _, tools := range []int{3, 30, 400} {
		core := newListServer(tools, nil)
		body, _ := modernCall("tools/list", "")
		msg, err := jsonrpc.Decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		req, err := mcp.NewRequest(msg)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := mcp.Driver(core).AppendResponse(nil, t.Context(), req)
		if got := start(t, core, nil).modern("tools/list", "").body; got != string(want) {
			t.Errorf("got %.300s, want %.300s", got, want)
		}
	}
}

// A handler may change a list in place, even after it was encoded.
func TestLists_MayBeChangedInPlace(t *testing.T) {
	server := newListServer(30, nil)
	handler := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if _, err := mcp.Driver(server).AppendResult(nil, ctx, req); err != nil {
			return nil, err
		}
		res, err := server.ServeMCP(ctx, req)
		list, ok := res.(*mcp.ListToolsResult)
		if !ok || len(list.Tools) != 30 || slices.Contains(list.Tools, nil) {
			t.Errorf("got %v, %v; want 30 tools", res, err)
			return res, err
		}
		clear(list.Tools)
		list.Tools = nil
		return res, nil
	})
	f := start(t, handler, nil)
	for range 2 {
		if got := f.modern("tools/list", "").body; !strings.Contains(got, `"tools":[]`) {
			t.Errorf("got %s, want no tools", got)
		}
	}
}

// The stream contains no part of a list that cannot be encoded.
func TestLists_ThatCannotBeEncodedAreErrors(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger,
		Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				res, err := next.ServeMCP(ctx, req)
				if list, ok := res.(*mcp.ListToolsResult); ok {
					_ = req.Notify(ctx, "notifications/message", []byte(`{"level":"info","data":"hello"}`))
					list.Meta = mcp.Meta{"com.example/x": make(chan int)}
				}
				return res, err
			})
		}}})
	mcp.AddTool(s, &mcp.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
	f := start(t, s, nil)
	for _, id := range []string{"1", `"` + strings.Repeat("x", 250) + `"`} {
		body, headers := modernCall("tools/list", "")
		body = strings.Replace(body, `"id":1`, `"id":`+id, 1)
		resp, err := f.client.Do(f.request(t.Context(), http.MethodPost, body, headers...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := "data: " + `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"internal error","data":{"incident":"`
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("got %v\n%s\nwant %s", err, got, want)
		}
	}
}

// A handler that encodes the result of another handler receives a whole list: only the response to
// the client is written in parts.
func TestLists_AreEncodedAsAWhole(t *testing.T) {
	inner := newListServer(400, nil)
	core := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		raw, failure := mcp.Driver(inner).AppendResult(nil, ctx, req)
		if failure != nil {
			return nil, failure
		}
		return mcp.RawResult(raw), nil
	})
	f := start(t, core, nil)
	var want []string
	for i := range 400 {
		want = append(want, fmt.Sprintf("tool_%04d", i))
	}
	listResponse{}.check(t, f.list(false, nil), want, false)
	listResponse{}.check(t, f.list(false, f.initialize(november2025)), want, false)
}
