package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// fakeTasks returns a server whose results about tasks the test sets.
func fakeTasks(results map[string]string) mcp.Handler {
	s := mcp.NewServer("fake", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "tool"}, func(context.Context, struct{}) (string, error) { return "", nil })
	s.AddExtension("io.modelcontextprotocol/tasks", nil)
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if text, ok := results[req.Method]; ok {
			return mcp.RawResult(text), nil
		}
		res, err := s.ServeMCP(ctx, req)
		if d, ok := res.(*mcp.DiscoverResult); ok && req.Revision() == "2025-11-25" {
			d.Capabilities.Tasks = []byte(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
		}
		if page, ok := res.(*mcp.ListToolsResult); ok && req.Revision() == "2025-11-25" {
			page.Tools[0].Execution = []byte(`{"taskSupport":"required"}`)
		}
		return res, err
	})
}

const working = `"status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"`

// Malformed tasks of a server are errors for the caller, and have no other effect.
func TestMalformedTasks(t *testing.T) {
	long := strings.Repeat("x", 400)
	for name, task := range map[string]string{
		"no id": `{` + working + `}`, "number": `{"taskId":5,` + working + `}`, "empty": `{"taskId":"",` + working + `}`,
		"long": `{"taskId":"` + long + `",` + working + `}`, "null": `{"taskId":null}`,
	} {
		for _, up := range oneProcess(mcptest.Since("2025-11-25")) {
			result := `{"resultType":"task",` + task[1:]
			if !up.Modern() {
				result = `{"resultType":"task","task":` + task + `}`
			}
			for _, down := range []string{"2025-11-25", mcptest.Modern} {
				t.Run(name+"/"+up.String()+"/"+down, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := fakeTasks(map[string]string{"tools/call": result})
						h := openHost(t, map[string]mcp.Handler{"a": s}, up, "{}", "", nil)
						c := mcptest.Dial(t, h.For(&policy.Caller{}), mcptest.Combination{Transport: "stdio", Revision: down}, answering())
						if h, err := tasks.Start(t.Context(), c, "a__tool", nil); err == nil {
							r, err := h.Wait(t.Context())
							if err == nil && !r.IsError {
								t.Errorf("got a task %q with the result %+v", h.ID(), r)
							}
						}
					})
				})
			}
		}
	}
}

// Whatever a server says about a task, the caller gets an answer that names no other task.
func TestMalformedStates(t *testing.T) {
	for name, state := range map[string]string{
		"other task":    `{"resultType":"complete","taskId":"other",` + working + `}`,
		"no status":     `{"resultType":"complete","taskId":"t"}`,
		"status":        `{"resultType":"complete","taskId":"t","status":[]}`,
		"no questions":  `{"resultType":"complete","taskId":"t","status":"input_required"}`,
		"questions":     `{"resultType":"complete","taskId":"t","status":"input_required","inputRequests":[]}`,
		"no result":     `{"resultType":"complete","taskId":"t","status":"completed"}`,
		"result":        `{"resultType":"complete","taskId":"t","status":"completed","result":5}`,
		"no error":      `{"resultType":"complete","taskId":"t","status":"failed"}`,
		"error":         `{"resultType":"complete","taskId":"t","status":"failed","error":{"code":"x"}}`,
		"poll interval": `{"resultType":"complete","taskId":"t","status":"working","pollIntervalMs":-1e400}`,
		"input":         `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}`,
	} {
		for _, up := range oneProcess(mcptest.Since("2025-11-25")) {
			created := `{"resultType":"task","taskId":"t",` + working + `}`
			if !up.Modern() {
				created = `{"resultType":"task","task":{"taskId":"t",` + working + `,"ttl":60000}}`
			}
			for _, down := range []string{"2025-11-25", mcptest.Modern} {
				t.Run(name+"/"+up.String()+"/"+down, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := openHost(t, map[string]mcp.Handler{"a": fakeTasks(map[string]string{
							"tools/call": created, "tasks/get": state, "tasks/cancel": state, "tasks/result": state,
						})}, up, "{}", "", nil)
						c := mcptest.Dial(t, h.For(&policy.Caller{}), mcptest.Combination{Transport: "stdio", Revision: down}, answering())
						task := start(t, c, "a__tool")
						if got, err := task.Get(t.Context()); err == nil && got.ID != task.ID() {
							t.Errorf("got the task %q, want %q", got.ID, task.ID())
						}
						var failed *mcp.Error
						if err := task.Cancel(t.Context()); err != nil && !errors.As(err, &failed) {
							t.Errorf("cancel: %v", err)
						}
					})
				})
			}
		}
	}
}
