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

	"github.com/patchbay-mcp/patchbay/internal/mcpint"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// lister has tools to list, and middleware unless it is nil.
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

// A listed is an answer to tools/list.
type listResponse struct {
	Result struct {
		Tools      []struct{ Name string }
		NextCursor string `json:"nextCursor"`
	}
}

// check reports whether the answer is one message with the tools, and what the result has beside them.
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

// Lists are kept as they are written, and go out without being put together. What goes out is one response with its length
// all the same: of every size, to many clients at once, and whatever stands in front of the server.
func TestListsAreWhole(t *testing.T) {
	for name, change := range map[string]func(context.Context, *mcp.Request, *mcp.ListToolsResult){
		"as it is": nil,
		"shorter": func(_ context.Context, _ *mcp.Request, l *mcp.ListToolsResult) {
			clear(l.Tools[:1]) // in place
			l.Tools = l.Tools[1:]
		},
		"other hints": func(_ context.Context, _ *mcp.Request, l *mcp.ListToolsResult) { l.TTL = 7 * time.Millisecond },
		"after a note": func(ctx context.Context, req *mcp.Request, _ *mcp.ListToolsResult) {
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
				var asking sync.WaitGroup
				for range 3 {
					session := f.initialize(november2025)
					asking.Go(func() {
						for range 3 {
							listResponse{}.check(t, f.list(name == "after a note", nil), want, tools > 500)
							listResponse{}.check(t, f.list(name == "after a note", session), want, tools > 500)
						}
					})
				}
				asking.Wait()
			})
		}
	}
}

// list requests the tools, and returns the response of a stream or of JSON with a Content-Length.
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
		if said := resp.Header.Get("Content-Length"); said != strconv.Itoa(len(b)) {
			f.t.Errorf("Content-Length is %q, of %d bytes", said, len(b))
		}
		return string(b)
	}
	events := strings.Split(string(b), "\ndata: ")
	return events[len(events)-1]
}

// A client of the modern era receives byte for byte what the server returns to a transport that
// requests the whole result.
func TestListsAreThoseOfTheServer(t *testing.T) {
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
		want, _ := mcpint.Get[*mcp.Request, mcp.Handler]().AppendResponse(nil, t.Context(), core, req)
		if got := start(t, core, nil).modern("tools/list", "").body; got != string(want) {
			t.Errorf("got %.300s, want %.300s", got, want)
		}
	}
}

// A handler in front of a server may change a list in place, also when it has had it written before.
func TestListsAreTheirHandlersOwn(t *testing.T) {
	server := newListServer(30, nil)
	front := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if _, err := mcpint.Get[*mcp.Request, mcp.Handler]().AppendResult(nil, ctx, server, req); err != nil {
			return nil, err
		}
		res, err := server.ServeMCP(ctx, req)
		list, ok := res.(*mcp.ListToolsResult)
		if !ok || len(list.Tools) != 30 || slices.Contains(list.Tools, nil) {
			t.Errorf("got %v, %v", res, err)
			return res, err
		}
		clear(list.Tools)
		list.Tools = nil
		return res, nil
	})
	f := start(t, front, nil)
	for range 2 {
		if got := f.modern("tools/list", "").body; !strings.Contains(got, `"tools":[]`) {
			t.Errorf("got %s", got)
		}
	}
}

// A kept list that is written has a time of its own too.
func TestKeptListsHaveTheirOwnTime(t *testing.T) {
	body, _ := modernCall("tools/list", "")
	header := modernHeader()
	header["Mcp-Method"], header["Mcp-Name"] = []string{"tools/list"}, nil
	x := newRepeatedRequest(mcphttp.NewHandler(newListServer(400, nil), nil), body, header)
	w := &deadlineWriter{ResponseWriter: x.writer, deadline: time.Now().Add(time.Hour)}
	x.handler.ServeHTTP(w, x.request)
	if x.check(t, "tool_0399"); w.underDeadline > 0 || !w.deadline.IsZero() {
		t.Errorf("%d writes under the deadline of the server", w.underDeadline)
	}
}
