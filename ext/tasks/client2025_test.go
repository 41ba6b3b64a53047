package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const taskCapabilities2025 = `{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`

// createdTask2025 returns a result of revision 2025-11-25 that creates a task, and taskState2025
// one of tasks/get.
func createdTask2025() string {
	return `{"resultType":"task","task":{"taskId":"t1","status":"working",` + times +
		`,"ttl":60000,"pollInterval":2000}}`
}

func taskState2025(status string) string {
	return `{"taskId":"t1","status":"` + status + `",` + times + `,"ttl":null,"pollInterval":2000}`
}

const result2025 = `{"content":[{"type":"text","text":"hello"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`

// supporting is a list with one tool for each taskSupport.
const supporting = `{"tools":[
	{"name":"must","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},
	{"name":"may","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},
	{"name":"never","inputSchema":{"type":"object"},"execution":{"taskSupport":"forbidden"}},
	{"name":"silent","inputSchema":{"type":"object"}},
	{"name":"odd","inputSchema":{"type":"object"},"execution":{"taskSupport":"sometimes"}}]}`

func newFakeServer2025() *fakeServer {
	return &fakeServer{capabilities: taskCapabilities2025, responses: map[string]responder{
		"tools/list": always(supporting),
		"tools/call": func(req *mcp.Request, _ int) (string, error) {
			if strings.Contains(line(req), "{") {
				return createdTask2025(), nil
			}
			return `{"content":[{"type":"text","text":"at once"}]}`, nil
		},
		"tasks/get":    inOrder(taskState2025("working"), taskState2025("completed")),
		"tasks/result": always(result2025),
		"tasks/cancel": always(taskState2025("cancelled")),
	}}
}

func combination2025(transport string) mcptest.Combination {
	return mcptest.Combination{Transport: transport, Revision: "2025-11-25"}
}

// Requirement: TASKD-05, TASKD-17
func TestRequiredToolIsCalledAsTask(t *testing.T) {
	for _, transport := range mcptest.Transports() {
		t.Run(transport, func(t *testing.T) {
			s := newFakeServer2025()
			runWithServerOn(t, s, combination2025(transport), nil, &tasks.ClientOptions{TTL: time.Minute},
				func(t *testing.T, c *mcp.Client) {
					r, err := c.CallTool(t.Context(), "must", nil)
					wantText(t, r, err, "hello")
					s.wantRequests(t, "tools/list", `tools/call must {"ttl":60000}`, "tasks/get t1", "tasks/get t1",
						"tasks/result t1")
					if at := s.requestTimes("tasks/get"); !slices.Equal(at, []time.Duration{2 * time.Second, 4 * time.Second}) {
						t.Errorf("tasks/get after %v, want 2s and 4s", at)
					}
				})
		})
	}
}

// Requirement: TASKD-04
func TestOptionalToolIsCalledWithoutTask(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		for _, tool := range []string{"may", "never", "silent", "odd", "unlisted"} {
			r, err := c.CallTool(t.Context(), tool, nil)
			wantText(t, r, err, "at once")
		}
		s.wantRequests(t, "tools/list", "tools/call may", "tools/call never", "tools/call silent", "tools/call odd",
			"tools/call unlisted")
		h := start(t, c, "may")
		if h.ID() != "t1" {
			t.Errorf("got %+v", h)
		}
		if h := start(t, c, "never"); h.ID() != "" {
			t.Errorf("got %+v", h)
		}
	})
}

// Requirement: TASKD-02
func TestNoTasksWithoutServerCapability(t *testing.T) {
	for _, capabilities := range []string{`{"tools":{}}`, `{"tools":{},"tasks":{}}`,
		`{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{}}}}`} {
		s := newFakeServer2025()
		s.capabilities = capabilities
		runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
			r, err := c.CallTool(t.Context(), "must", nil)
			wantText(t, r, err, "at once")
			s.wantRequests(t, "tools/call must")
		})
	}
}

func TestOlderRevisionsHaveNoTasks(t *testing.T) {
	for _, on := range mcptest.Before("2025-11-25") {
		t.Run(on.String(), func(t *testing.T) {
			s := newFakeServer2025()
			runWithServerOn(t, s, on, nil, nil, func(t *testing.T, c *mcp.Client) {
				h := start(t, c, "must")
				r, err := h.Wait(t.Context())
				wantText(t, r, err, "at once")
				s.wantRequests(t, "tools/call must")
			})
		})
	}
}

// The taskSupport of a tool may change after it was listed.
func TestToolThatBecameRequiredIsCalledAgainAsTask(t *testing.T) {
	s := newFakeServer2025()
	s.responses["tools/list"] = inOrder(`{"tools":[]}`, supporting)
	call := s.responses["tools/call"]
	s.responses["tools/call"] = func(req *mcp.Request, n int) (string, error) {
		if !strings.Contains(line(req), "{") {
			return "", mcp.Errorf(mcp.CodeMethodNotFound, "call the tool as a task")
		}
		return call(req, n)
	}
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "must", nil)
		wantText(t, r, err, "hello")
		s.wantRequests(t, "tools/list", "tools/call must", "tools/list", "tools/call must {}", "tasks/get t1",
			"tasks/get t1", "tasks/result t1")
		_, err = c.CallTool(t.Context(), "never", nil)
		var fault *mcp.Error
		if !errors.As(err, &fault) || fault.Code != mcp.CodeMethodNotFound {
			t.Errorf("got %v", err)
		}
	})
}

// While it is unknown whether a tool can be called as a task, Start must not call it: the result
// would arrive on the connection of the call only, and a cut would lose it.
func TestStartFailsIfToolsCannotBeListedNow(t *testing.T) {
	cut := &mcp.TransportError{Method: "tools/list", MayHaveRun: true, Err: errors.New("the connection broke")}
	for name, test := range map[string]struct {
		err    error
		direct bool // the server has no list, so that the tool is called without a task
	}{
		"cut":         {cut, false},
		"busy":        {mcp.Errorf(mcp.CodeBusy, "later"), false},
		"failing":     {mcp.Errorf(mcp.CodeInternalError, "no disk"), false},
		"unsupported": {mcp.Errorf(mcp.CodeMethodNotFound, "method not found"), true},
	} {
		t.Run(name, func(t *testing.T) {
			fail := true
			flaky := &mcp.ClientOptions{Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
				return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					if req.Method == "tools/list" && fail {
						return nil, test.err
					}
					return next.ServeMCP(ctx, req)
				})
			}}}
			s := newFakeServer2025()
			runWithServerOn(t, s, combination2025(mcptest.InMemory), flaky, nil, func(t *testing.T, c *mcp.Client) {
				h, err := tasks.Start(t.Context(), c, "may", nil)
				if test.direct {
					if err != nil || h.ID() != "" {
						t.Errorf("Start returned %+v, %v; want a result at once", h, err)
					}
					s.wantRequests(t, "tools/call may")
					return
				}
				var failed *mcp.TransportError
				if !errors.As(err, &failed) || failed.MayHaveRun || failed.Method != "tools/call" {
					t.Errorf("Start returned %+v, %v; want the error of a call that did not run", h, err)
				}
				s.wantRequests(t)
				fail = false
				if h := start(t, c, "may"); h.ID() != "t1" {
					t.Errorf("got %+v, want task t1", h)
				}
			})
		})
	}
}

// A call that waits for its result needs no list: a tool that runs as a task only refuses it.
func TestCallIsSentIfToolsCannotBeListed(t *testing.T) {
	s := newFakeServer2025()
	s.responses["tools/list"] = failWith(mcp.CodeInternalError, "no disk")
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "may", nil)
		wantText(t, r, err, "at once")
	})
}

// Requirement: TASKD-20
func TestStatusOfToolErrorIn2025(t *testing.T) {
	for name, test := range map[string]struct {
		status string
		result responder
		check  func(t *testing.T, task *tasks.Task, getErr error, r *mcp.CallToolResult, err error)
	}{
		"failed tool": {"failed", always(`{"content":[{"type":"text","text":"no"}],"isError":true}`),
			func(t *testing.T, task *tasks.Task, getErr error, r *mcp.CallToolResult, err error) {
				if err != nil || !r.IsError || getErr != nil || task.Status != tasks.StatusFailed || task.Error != nil ||
					!strings.Contains(string(task.Result), "isError") {
					t.Errorf("got %+v, %v; %+v, %v", task, getErr, r, err)
				}
			}},
		"failed call": {"failed", failWith(-32603, "quota"), func(t *testing.T, task *tasks.Task, getErr error,
			_ *mcp.CallToolResult, err error) {
			var fault *mcp.Error
			if !errors.As(err, &fault) || fault.Message != "quota" || getErr != nil || task.Error == nil ||
				task.Error.Message != "quota" || task.Result != nil {
				t.Errorf("got %+v, %v; %v", task, getErr, err)
			}
		}},
		"cancelled": {"cancelled", failWith(-32603, "not requested"),
			func(t *testing.T, task *tasks.Task, getErr error, _ *mcp.CallToolResult, err error) {
				if !errors.Is(err, mcp.ErrCancelled) || getErr != nil || task.Status != tasks.StatusCancelled ||
					task.Error != nil {
					t.Errorf("got %+v, %v; %v", task, getErr, err)
				}
			}},
		"completed": {"completed", always(result2025), func(t *testing.T, task *tasks.Task, getErr error,
			r *mcp.CallToolResult, err error) {
			wantText(t, r, err, "hello")
			if getErr != nil || task.Status != tasks.StatusCompleted ||
				!strings.Contains(string(task.Result), "hello") {
				t.Errorf("got %+v, %v", task, getErr)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer2025()
			s.responses["tasks/get"], s.responses["tasks/result"] = inOrder(taskState2025("working"), taskState2025(test.status)), test.result
			runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
				h := start(t, c, "must")
				r, err := h.Wait(t.Context())
				task, getErr := h.Get(t.Context())
				test.check(t, task, getErr, r, err)
				var last *tasks.Task
				for task, err := range h.Updates(t.Context()) {
					if err != nil {
						t.Error(err)
					}
					last = task
				}
				test.check(t, last, nil, r, err)
			})
		})
	}
}

// blocking makes tasks/result wait until the task ends after d, and calls before first.
func blocking(s *fakeServer, d time.Duration, before func(ctx context.Context, req *mcp.Request) error) {
	began := time.Now()
	s.responses["tasks/get"] = func(*mcp.Request, int) (string, error) {
		if time.Since(began) < d {
			return taskState2025("input_required"), nil
		}
		return taskState2025("completed"), nil
	}
	s.intercept = func(ctx context.Context, req *mcp.Request) error {
		if req.Method != "tasks/result" {
			return nil
		}
		if before != nil {
			if err := before(ctx, req); err != nil {
				return err
			}
		}
		select {
		case <-time.After(d - time.Since(began)):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Requirement: TASKD-14
func TestInputRequestsDuringTasksResult(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.HTTP), nil, nil, func(t *testing.T, c *mcp.Client) {
		blocking(s, 3*time.Hour, nil)
		r, err := c.CallTool(t.Context(), "must", nil)
		wantText(t, r, err, "hello")
		if n := len(s.requestTimes("tasks/result")); n != 1 {
			t.Errorf("%d tasks/result requests", n)
		}
	})
}

func TestProgressDuringTasksResult(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		blocking(s, time.Minute, func(ctx context.Context, req *mcp.Request) error {
			token, _ := req.Meta("progressToken")
			for i := range 3 {
				time.Sleep(time.Second)
				if err := req.Notify(ctx, "notifications/progress",
					json.RawMessage(fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i+1))); err != nil {
					return err
				}
			}
			return nil
		})
		var notes []float64
		ctx := mcp.WithCallOptions(t.Context(),
			mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) { notes = append(notes, u.Progress) }})
		r, err := c.CallTool(ctx, "must", nil)
		wantText(t, r, err, "hello")
		if !slices.Equal(notes, []float64{1, 2, 3}) {
			t.Errorf("got %v", notes)
		}
	})
}

// A server may wait in tasks/result, or return an error while the task works.
func TestTasksResultIsRepeatedIfNotReady(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		isOver := func() bool { return time.Since(began) > time.Hour }
		s.responses["tasks/get"] = func(*mcp.Request, int) (string, error) {
			if isOver() {
				return taskState2025("completed"), nil
			}
			return taskState2025("working"), nil
		}
		s.responses["tasks/result"] = func(*mcp.Request, int) (string, error) {
			if isOver() {
				return result2025, nil
			}
			return "", mcp.Errorf(mcp.CodeInvalidParams, "not yet")
		}
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
		r, err := c.CallTool(ctx, "must", nil)
		wantText(t, r, err, "hello")
		if n := len(s.requestTimes("tasks/result")); n != 2 {
			t.Errorf("%d tasks/result requests", n)
		}
	})
}

// A broken stream is replaced when the task has ended.
func TestTasksResultOnDeadStreamIsRepeated(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		dead := true
		blocking(s, time.Hour, func(ctx context.Context, _ *mcp.Request) error {
			if dead {
				dead = false
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		began := time.Now()
		r, err := c.CallTool(t.Context(), "must", nil)
		wantText(t, r, err, "hello")
		if took := time.Since(began); took > time.Hour+time.Minute {
			t.Errorf("took %v, want at most 1h1m", took)
		}
	})
}

// Requirement: TASKD-25
func TestTasksResultIsRepeatedAfterLostStream(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		lost := 0
		blocking(s, time.Hour, func(context.Context, *mcp.Request) error {
			if lost++; lost < 4 {
				return mcp.Errorf(mcp.CodeInternalError, "lost")
			}
			return nil
		})
		r, err := c.CallTool(t.Context(), "must", nil)
		wantText(t, r, err, "hello")
	})
}

// A server that does not return the result of a task that has ended makes the call fail.
func TestTasksResultTimesOut(t *testing.T) {
	s := newFakeServer2025()
	s.responses["tasks/get"] = always(taskState2025("input_required"))
	s.responses["tasks/result"] = failWith(mcp.CodeInternalError, "not yet")
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "must", nil)
		if took := time.Since(began); err == nil || took > 5*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// Requirement: TASKD-15, CAN-03
func TestEndedCallCancelsTaskOf2025(t *testing.T) {
	for _, status := range []string{"working", "input_required"} {
		t.Run(status, func(t *testing.T) {
			s := newFakeServer2025()
			runWithServerOn(t, s, combination2025(mcptest.HTTP), nil, nil, func(t *testing.T, c *mcp.Client) {
				blocking(s, time.Hour, nil)
				s.responses["tasks/get"] = always(taskState2025(status))
				ctx, cancel := context.WithTimeout(t.Context(), 61*time.Second) // between two polls
				defer cancel()
				if _, err := c.CallTool(ctx, "must", nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if requests := s.requests(); requests[len(requests)-1] != "tasks/cancel t1" {
					t.Errorf("requests %q", requests)
				}
			})
		})
	}
}

// Requirement: TASKD-21
func TestListFollowsCursors(t *testing.T) {
	page := func(next string, ids ...string) string {
		var list []string
		for _, id := range ids {
			list = append(list, strings.Replace(taskState2025("completed"), "t1", id, 1))
		}
		return `{"tasks":[` + strings.Join(list, ",") + `]` + next + `}`
	}
	for name, test := range map[string]struct {
		pages []string
		want  []string
		err   bool
	}{
		"pages": {[]string{page(`,"nextCursor":"a"`, "t1", "t2"), page(`,"nextCursor":""`), page(``, "t3")},
			[]string{"t1", "t2", "t3"}, false},
		"repeated cursor": {[]string{page(`,"nextCursor":"a"`, "t1"), page(`,"nextCursor":"b"`),
			page(`,"nextCursor":"a"`)}, []string{"t1"}, true},
		"broken":      {[]string{page(``, "t1", "")}, []string{"t1"}, true},
		"no list":     {[]string{`{"tasks":7}`}, nil, true},
		"long cursor": {[]string{page(`,"nextCursor":"` + strings.Repeat("x", 5000) + `"`)}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer2025()
			s.responses["tasks/list"] = inOrder(test.pages...)
			runWithServerOn(t, s, combination2025(mcptest.Stdio), nil, nil, func(t *testing.T, c *mcp.Client) {
				var ids []string
				var failed error
				for task, err := range tasks.List(t.Context(), c) {
					if failed = err; err == nil {
						ids = append(ids, task.ID)
					}
				}
				if !slices.Equal(ids, test.want) || (failed != nil) != test.err {
					t.Errorf("got %q, %v; want %q", ids, failed, test.want)
				}
			})
		})
	}
}

func TestAnswerFailsIn2025(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "must")
		if err := h.Answer(t.Context(), map[string]any{"k": 1}); err == nil ||
			!strings.Contains(err.Error(), "2025-11-25") {
			t.Errorf("got %v", err)
		}
		if err := h.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if requests := s.requests(); slices.Contains(requests, "tasks/update t1") {
			t.Error("tasks/update was sent")
		}
	})
}
