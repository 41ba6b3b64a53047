package host_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A server that responds, and lists no tools after a restart, is not reported as healthy.
func TestTrapHealthyWithoutTools(t *testing.T) {
	for _, up := range mcptest.Revisions() {
		t.Run(up, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				full, empty := newServer("full"), mcp.NewServer("full", "1", nil)
				mcp.AddTool(empty, &mcp.Tool{Name: "add"}, func(context.Context, struct{}) (string, error) { return "", nil }).Remove()
				mcp.AddPrompt(empty, &mcp.Prompt{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "hi", nil })
				p := &fakeProcess{handler: full}
				h := openFile(t, map[string]any{"r": map[string]string{"command": "r"}}, `{}`, &host.Options{
					Client: mcp.ClientOptions{Revision: up},
					Dial:   func(ctx context.Context, _ *config.Server) (mcp.Transport, error) { return p.dial(ctx) }})
				t.Cleanup(func() { _ = h.Close(); p.work.Wait() })
				u, c := upstream(t, h, "r"), client(t, h, &policy.Caller{})
				state := func(want status.State, tools int) {
					t.Helper()
					for range 2 { // also after another request
						time.Sleep(90 * time.Second) // fake: lists are old then
						list, err := mcp.Collect(c.Tools(t.Context()))
						if st := u.Status(); err != nil || st.State != want || len(list) != tools {
							t.Errorf("got %d tools, %v, %+v, want %d and %s", len(list), err, st, tools, want)
						}
						if _, err := c.GetPrompt(t.Context(), "r__greet", nil); err != nil { // it responds
							t.Error(err)
						}
					}
				}
				state(status.Ready, 2)
				restart := func(s mcp.Handler) {
					p.handler = s
					if err := u.Restart(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				restart(empty)
				state(status.Degraded, 0)
				if err := u.Status().Err; err == nil || !strings.Contains(err.Error(), "lists no tools, and had 2 before") {
					t.Errorf("got %v, want the reason", err)
				}
				restart(full)
				state(status.Ready, 2)
			})
		})
	}
}

// A disguise changes the status and the media type of the responses of a server.
type disguise struct {
	status    int
	mediaType string
	works     bool // the response is valid
}

func (d disguise) wrap(inner http.Handler, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))
		if !slices.ContainsFunc(methods, func(m string) bool { return bytes.Contains(body, []byte(`"`+m+`"`)) }) {
			inner.ServeHTTP(w, req)
			return
		}
		real := httptest.NewRecorder()
		inner.ServeHTTP(real, req)
		text := bytes.TrimSpace(real.Body.Bytes())
		if _, event, ok := bytes.Cut(text, []byte("data: ")); ok {
			text = event
		}
		if strings.HasPrefix(strings.ToLower(d.mediaType), "text/event-stream") {
			text = []byte("event: message\ndata: " + string(text) + "\n\n")
		}
		w.Header()["Content-Type"] = []string{d.mediaType}
		w.WriteHeader(d.status)
		_, _ = w.Write(text)
	})
}

// What the policy hides and removes is hidden and removed in every form of a response: one that is not
// understood is not passed on.
func TestTrapFiltersMissAMediaTypeOr201(t *testing.T) {
	p := policyFunc(func(a *policy.Action) policy.Decision {
		switch {
		case a.Target == "hidden":
			return policy.Decision{Do: policy.OutcomeHide}
		case a.Kind == policy.ActionResult:
			return policy.Decision{Do: policy.OutcomeAllow, Redact: []policy.Redaction{{Pointer: "/secret"}}}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	})
	s := mcp.NewServer("r", "1", nil)
	type out struct {
		Secret string `json:"secret"`
		Open   string `json:"open"`
	}
	for _, name := range []string{"hidden", "shown"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, struct{}) (out, error) { return out{"s3cret", "open"}, nil })
	}
	for _, d := range []disguise{
		{200, "application/json", true}, {200, "application/json; charset=utf-8", true}, {200, "Application/JSON", true},
		{200, "text/event-stream", true}, {200, "TEXT/Event-Stream;charset=utf-8", true},
		{201, "application/json", false}, {202, "application/json", false}, {203, "application/json", false},
		{206, "application/json", false}, {201, "text/event-stream", false}, {200, "text/plain", false}, {200, "", false},
		{200, "application/json-rpc", false}, {200, "application/problem+json", false}, {200, "text/html", false},
		{200, "application/json, text/event-stream", false}, {200, "application/octet-stream", false},
	} {
		for _, methods := range [][]string{{"tools/list", "tools/call"}, {"tools/call"}} {
			t.Run(fmt.Sprint(d.mediaType, " ", d.status, " ", methods), func(t *testing.T) {
				r := newRemote(t)
				served := mcphttp.NewHandler(s, &mcphttp.Options{Logger: noLog})
				defer served.Shutdown(context.Background())
				r.use(d.wrap(served, methods...))
				entry := map[string]any{"type": "http", "url": r.url}
				h := openFile(t, map[string]any{"r": entry, "x": entry}, `{"servers": {"r": {"era": "session"}}}`,
					&host.Options{Policy: p})
				c := client(t, h, &policy.Caller{})
				tools, err := mcp.Collect(c.Tools(t.Context()))
				for _, tool := range tools {
					if strings.Contains(tool.Name, "hidden") {
						t.Errorf("the tool %s is listed", tool.Name)
					}
				}
				if err == nil && d.works && len(tools) != 2 {
					t.Errorf("got %d tools, want the visible one of each server", len(tools))
				}
				for _, tool := range []string{"r__shown", "r__hidden", "x__shown", "x__hidden"} {
					res, err := c.CallTool(t.Context(), tool, nil)
					text := ""
					if err == nil {
						text = res.Text() + fmt.Sprintf("%+v", res.StructuredContent)
					}
					if strings.Contains(text, "s3cret") || strings.HasSuffix(tool, "hidden") && strings.Contains(text, "open") {
						t.Errorf("%s: got %s", tool, text)
					}
					if strings.HasSuffix(tool, "shown") && d.works && !strings.Contains(text, "open") {
						t.Errorf("%s: got %q, %v, want the rest of the result", tool, text, err)
					}
				}
			})
		}
	}
}

// A pattern of the setting deny has no characters with a special meaning but * and ?, and is applied to
// the name that the server gets.
func TestTrapGlobsMatchAnotherName(t *testing.T) {
	s := mcp.NewServer("r", "1", nil)
	names := []string{"delete_all", "delete_", "delete_a.b", "delete_a-b", "xdelete_all", "Delete_all", "ab", "a.c", "abc"}
	for _, name := range names {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return name, nil })
	}
	for _, down := range oneProcess(mcptest.Combinations()) {
		h := openFile(t, map[string]any{"r": map[string]string{"command": "r"}, "x": map[string]string{"command": "x"}},
			`{"servers": {"r": {"deny": ["delete_*", "a[b]", "a.c"], "rename": {"delete_all": "keep", "ab": "delete_x"}}}}`,
			&host.Options{Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(s), nil }})
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		for name, served := range map[string]bool{"delete_all": false, "keep": false, "delete_": false, "delete_a.b": false,
			"delete_a-b": false, "a.c": false, "xdelete_all": true, "Delete_all": true, "delete_x": true, "abc": true} {
			res, err := c.CallTool(t.Context(), "r__"+name, nil)
			if ok := err == nil && !res.IsError; ok != served {
				t.Errorf("%v: the call of %s: %v, %v, want that it is served: %t", down, name, res, err, served)
			}
		}
	}
}
