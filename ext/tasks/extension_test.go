package tasks_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Only the result that creates a task has the resultType "task". The members of the task are not
// nested. The result of tasks/get has the members that belong to its status.
//
// Requirement: TASKX-07, TASKX-10
func TestResultsOfEachStatus(t *testing.T) {
	add := func(b *testServer) {
		b.tool("completed", nil, func(context.Context) (string, error) { return "done", nil })
		b.tool("failed", nil, func(context.Context) (string, error) { return "", mcp.Errorf(-32001, "no") })
		b.tool("input_required", nil, func(ctx context.Context) (string, error) {
			var first, second string
			return "", mcp.AskAll(ctx, mcp.FormQuestion("a", "?", &first, nil), mcp.FormQuestion("b", "?", &second, nil))
		})
		addSleepTool(b, "working", nil)
		addSleepTool(b, "cancelled", nil)
	}
	runOn(t, mcptest.Since(mcptest.Modern), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		for status, special := range map[string]string{
			"working": "", "input_required": "inputRequests", "completed": "result", "failed": "error", "cancelled": "",
		} {
			raw := c.Send("tools/call", object{"name": status}).Wait().Result
			created := decode[object](t, raw)
			id, _ := created["taskId"].(string)
			if created["resultType"] != "task" || created["status"] != "working" || id == "" || created["task"] != nil {
				t.Errorf("%s: the call returned %s", status, raw)
			}
			synctest.Wait()
			if status == "cancelled" {
				c.Call("tasks/cancel", object{"taskId": id})
				synctest.Wait()
			}
			raw = c.Call("tasks/get", object{"taskId": id})
			got := decode[object](t, raw)
			if got["resultType"] != "complete" || got["status"] != status || got["taskId"] != id || got["task"] != nil {
				t.Errorf("%s: tasks/get returned %s", status, raw)
			}
			for _, member := range []string{"inputRequests", "result", "error"} {
				if (got[member] != nil) != (member == special) {
					t.Errorf("%s: member %s is %v", status, member, got[member])
				}
			}
			if requests, _ := got["inputRequests"].(object); status == "input_required" && len(requests) != 2 {
				t.Errorf("%d input requests, want 2: %s", len(requests), raw)
			}
		}
	})
}

// A server declares no extension, and a client none, unless the program adds it.
//
// Requirement: EXT-05
func TestExtensionsAreOffByDefault(t *testing.T) {
	for _, combination := range mcptest.Combinations() {
		t.Run(combination.String(), func(t *testing.T) {
			declared := make(chan map[string]json.RawMessage, 1)
			s := mcp.NewServer("test", "1", nil)
			mcp.AddTool(s, &mcp.Tool{Name: "x"}, func(ctx context.Context, _ struct{}) (string, error) {
				declared <- mcp.RequestFrom(ctx).Capabilities().Extensions
				return "done", nil
			})
			c := mcptest.Dial(t, s, combination, nil)
			if caps := c.Capabilities(); len(caps.Extensions) != 0 || caps.Tasks != nil {
				t.Errorf("the server declares the extensions %v and the tasks %s", caps.Extensions, caps.Tasks)
			}
			if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
				t.Fatal(err)
			}
			if got := <-declared; len(got) != 0 {
				t.Errorf("the client declares the extensions %v", got)
			}
		})
	}
}

// Settings that are not an object do not declare the extension.
//
// Requirement: EXT-02
func TestSettingsAreObjects(t *testing.T) {
	add := func(b *testServer) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
	}
	runOn(t, mcptest.Since(mcptest.Modern), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		for _, settings := range []any{object{}, nil, true, "x", []int{}, 1} {
			o := c.Options
			o.Capabilities = object{"extensions": object{tasks.ID: settings}}
			raw := c.Another(&o).Send("tools/call", object{"name": "may"}).Wait()
			_, valid := settings.(object)
			if isTask := strings.Contains(string(raw.Result), `"task"`); isTask != valid {
				t.Errorf("settings %v: result %s, error %v, want a task: %t", settings, raw.Result, raw.Error, valid)
			}
		}
		synctest.Wait()
	})
}

// A response to tasks/get is one JSON object, also if the client accepts a stream.
//
// Requirement: TASKD-26
func TestTasksGetIsNotAStream(t *testing.T) {
	b := newTestServer(t, nil, nil)
	b.tool("run", nil, func(context.Context) (string, error) { return "done", nil })
	handler := mcphttp.NewHandler(b.server, nil)
	server := httptest.NewServer(handler)
	defer func() {
		_ = handler.Shutdown(t.Context())
		server.Close()
		b.closeServer(t)
	}()
	session := ""
	post := func(body string) (contentType, response string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("MCP-Protocol-Version", revision2025)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		session = max(session, resp.Header.Get("Mcp-Session-Id"))
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Get("Content-Type"), string(raw)
	}
	post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + revision2025 +
		`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	_, created := post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","task":{}}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	contentType, got := post(`{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"` + id + `"}}`)
	if contentType != "application/json" || !slices.Contains([]string{"working", "completed"},
		decode[struct{ Result wireTask }](t, []byte(got)).Result.Status) {
		t.Errorf("tasks/get: content type %q, body %s", contentType, got)
	}
}
