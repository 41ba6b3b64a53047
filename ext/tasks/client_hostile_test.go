package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: TASKX-06
func TestOnlyToolCallsBecomeTasks(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"prompts/get": always(createdTask(``)), "resources/read": always(createdTask(``)), "tools/list": always(createdTask(``)),
		"tasks/get": always(createdTask(``)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		_, err := c.GetPrompt(t.Context(), "x", nil)
		wantInvalid(t, err)
		_, err = c.ReadResource(t.Context(), "x:y")
		wantInvalid(t, err)
		for _, err := range c.Tools(t.Context()) {
			wantInvalid(t, err)
		}
		_, err = tasks.Resume(c, "t1").Get(t.Context())
		wantInvalid(t, err)
		if n := len(s.requests()); n != 4 {
			t.Errorf("requests %q", s.requests())
		}
	})
}

// A client that has not declared the extension refuses tasks.
//
// Requirement: TASKX-06
func TestUndeclaredTaskIsInvalid(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``))}}
	synctest.Test(t, func(t *testing.T) {
		c := mcptest.Dial(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
		_, err := c.CallTool(t.Context(), "x", nil)
		wantInvalid(t, err)
		h, err := tasks.Start(t.Context(), c, "x", nil)
		if h != nil {
			t.Errorf("got a handle: %+v", h)
		}
		wantInvalid(t, err)
		s.responses["tasks/get"] = always(taskState("working", ``))
		if _, err := tasks.Resume(c, "t1").Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "Declare") {
			t.Errorf("got %v", err)
		}
		s.responses["tasks/get"] = failWith(driver.CodeMissingRequiredClientCapability, "no")
		if _, err := tasks.Resume(c, "t1").Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "Declare") {
			t.Errorf("got %v", err)
		}
	})
}

// Requirement: EXT-08
func TestInvalidTasksAreRefused(t *testing.T) {
	many := strings.Repeat(`"%d":{"method":"x"},`, 1001)
	var n []any
	for i := range 1001 {
		n = append(n, i)
	}
	many = strings.TrimSuffix(fmt.Sprintf(many, n...), ",")
	for name, raw := range map[string]string{
		"no id":                        `{"status":"working"}`,
		"an empty id":                  `{"taskId":"","status":"working"}`,
		"an id that is not a string":   `{"taskId":7,"status":"working"}`,
		"a long id":                    `{"taskId":"` + strings.Repeat("x", 5000) + `","status":"working"}`,
		"another id":                   `{"taskId":"t2","status":"working"}`,
		"no status":                    `{"taskId":"t1"}`,
		"an unknown status":            taskState("unknown", ``),
		"no result":                    taskState("completed", ``),
		"a result that is text":        taskState("completed", `,"result":"x"`),
		"a result that asks":           taskState("completed", `,"result":{"resultType":"input_required","requestState":"x"}`),
		"a result that is a task":      taskState("completed", `,"result":`+createdTask(``)),
		"invalid content":              taskState("completed", `,"result":{"content":{}}`),
		"no error":                     taskState("failed", ``),
		"an empty error":               taskState("failed", `,"error":{}`),
		"no questions":                 taskState("input_required", ``),
		"a list of questions":          taskState("input_required", `,"inputRequests":[]`),
		"an empty question":            taskState("input_required", `,"inputRequests":{"k":{}}`),
		"a question that is text":      taskState("input_required", `,"inputRequests":{"k":"x"}`),
		"too many questions":           taskState("input_required", `,"inputRequests":{`+many+`}`),
		"a task in a task":             `{"task":` + taskState("working", ``) + `}`,
		"input_required as resultType": `{"resultType":"input_required","requestState":"x","taskId":"t1","status":"working"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": always(raw),
				"tasks/cancel": always(`{}`)}}
			runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				_, err := c.CallTool(t.Context(), "x", nil)
				wantInvalid(t, err)
				if name == "invalid content" {
					return // the task has ended
				}
				s.wantRequests(t, "tools/call x", "tasks/get t1", "tasks/cancel t1")
				_, err = tasks.Resume(c, "t1").Get(t.Context())
				wantInvalid(t, err)
			})
		})
	}
}

func TestInvalidCreatedTasksAreRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"nested":            `{"resultType":"task","task":` + taskState("working", ``) + `}`,
		"no id":             `{"resultType":"task","status":"working"}`,
		"an unknown status": `{"resultType":"task","taskId":"t1","status":"new"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{"tools/call": always(raw)}}
			runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				_, err := c.CallTool(t.Context(), "x", nil)
				wantInvalid(t, err)
				_, err = tasks.Start(t.Context(), c, "x", nil)
				wantInvalid(t, err)
			})
		})
	}
}

func TestPollIntervalsAreBounded(t *testing.T) {
	for raw, want := range map[string]time.Duration{
		``:                                time.Second,
		`,"pollIntervalMs":null`:          time.Second,
		`,"pollIntervalMs":0`:             time.Second,
		`,"pollIntervalMs":-5`:            time.Second,
		`,"pollIntervalMs":"soon"`:        time.Second,
		`,"pollIntervalMs":1e300`:         time.Second,
		`,"pollIntervalMs":1`:             50 * time.Millisecond,
		`,"pollIntervalMs":0.5`:           50 * time.Millisecond,
		`,"pollIntervalMs":250`:           250 * time.Millisecond,
		`,"pollIntervalMs":31536000000`:   5 * time.Minute,
		`,"pollInterval":9000`:            time.Second, // the member of the other form
		`,"pollIntervalMs":9223372036854`: time.Second, // above the limit
	} {
		t.Run(raw, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(raw)),
				"tasks/get": always(taskState("completed", helloResult))}}
			runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				_, err := c.CallTool(t.Context(), "x", nil)
				if at := s.requestTimes("tasks/get"); err != nil || len(at) != 1 || at[0] != want {
					t.Errorf("tasks/get after %v, want %v (error %v)", at, want, err)
				}
			})
		})
	}
}

// Requests are repeated while the server restarts or is busy.
func TestPollingSurvivesServerErrors(t *testing.T) {
	for name, failure := range map[string]error{
		"busy":               &mcp.Error{Code: mcp.CodeBusy, Message: "busy", Data: []byte(`{"retryAfterMs":20000}`)},
		"internal error":     mcp.Errorf(mcp.CodeInternalError, "internal error"),
		"connection refused": &mcp.TransportError{Method: "x", Err: errors.New("connection refused")},
		"disconnected":       &mcp.TransportError{Method: "x", MayHaveRun: true, Err: mcp.ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{
				"tools/call": always(createdTask(``)),
				"tasks/get": func(_ *mcp.Request, n int) (string, error) {
					switch {
					case n == 0:
						return taskState("input_required", `,"inputRequests":{"k":`+form("x")+`}`), nil
					case n < 5:
						return "", failure
					}
					return taskState("completed", helloResult), nil
				},
				"tasks/update": func(_ *mcp.Request, n int) (string, error) {
					if n < 2 {
						return "", failure
					}
					return `{}`, nil
				},
			}}
			var asked []string
			runWithServer(t, s, answerForms(&asked), nil, func(t *testing.T, c *mcp.Client) {
				began := time.Now()
				r, err := c.CallTool(t.Context(), "x", nil)
				wantText(t, r, err, "hello")
				if took := time.Since(began); name == "busy" && took < 6*20*time.Second {
					t.Errorf("took %v with a busy server, want at least 2m", took)
				}
				if len(asked) != 1 {
					t.Errorf("elicitations %q, want one", asked)
				}
			})
		})
	}
}

// Servers of older revisions use this code when they are busy. In 2026-07-28 it has no meaning.
//
// Requirement: RPC-28
func TestPollingEndsWithAnImplementationCode(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": func(*mcp.Request, int) (string, error) {
			return "", &mcp.Error{Code: -32000, Message: "busy", Data: []byte(`{"retryAfterMs":20000}`)}
		},
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		_, err := c.CallTool(t.Context(), "x", nil)
		got, ok := errors.AsType[*mcp.Error](err)
		if n := len(s.requestTimes("tasks/get")); !ok || got.Code != -32000 || n != 1 {
			t.Errorf("got %v after %d tasks/get requests, want code -32000 after 1", err, n)
		}
	})
}

func TestPollingEndsAfterMaxOutage(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": func(*mcp.Request, int) (string, error) {
			return "", &mcp.TransportError{Method: "tasks/get", Err: errors.New("connection refused")}
		},
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if took := time.Since(began); took < 2*time.Minute || took > 3*time.Minute || err == nil ||
			!strings.Contains(err.Error(), `task "t1": no response for`) {
			t.Errorf("after %v: %v", took, err)
		}
		if n := len(s.requestTimes("tasks/get")); n > 20 {
			t.Errorf("%d tasks/get requests, want at most 20", n)
		}
	})
}

// A server that does not respond makes the call fail.
func TestPollingEndsWithoutResponses(t *testing.T) {
	s := &fakeServer{
		responses: map[string]responder{"tools/call": always(createdTask(``))},
		intercept: func(ctx context.Context, req *mcp.Request) error {
			if req.Method == "tools/call" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took > 5*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestRefusalEndsCall(t *testing.T) {
	for _, code := range []int{mcp.CodeInvalidParams, mcp.CodeMethodNotFound, driver.CodeMissingRequiredClientCapability,
		-31999} {
		s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": failWith(code, "no such task")}}
		runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
			_, err := c.CallTool(t.Context(), "x", nil)
			var fault *mcp.Error
			if !errors.As(err, &fault) || fault.Code != code {
				t.Errorf("got %v", err)
			}
			s.wantRequests(t, "tools/call x", "tasks/get t1")
		})
	}
}

// Requirement: TASKX-28
func TestPollingEndsAfterTTL(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call":   always(strings.Replace(createdTask(``), `"ttlMs":null`, `"ttlMs":1000`, 1)),
		"tasks/get":    always(strings.Replace(taskState("working", ``), `"ttlMs":null`, `"ttlMs":600000`, 1)),
		"tasks/cancel": always(`{}`),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took < 11*time.Minute ||
			took > 12*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
		if requests := s.requests(); requests[len(requests)-1] != "tasks/cancel t1" {
			t.Error("the last request is not tasks/cancel")
		}
	})
}

// A server that reuses a key gets no second answer, and the call ends.
//
// Requirement: TASKX-14
func TestAnsweredKeyIsNotAskedAgain(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": func(_ *mcp.Request, n int) (string, error) {
			return taskState("input_required", `,"inputRequests":{"k":`+form(fmt.Sprint("question ", n))+`}`), nil
		},
		"tasks/update": always(`{}`), "tasks/cancel": always(`{}`),
	}}
	var asked []string
	runWithServer(t, s, answerForms(&asked), nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		wantInvalid(t, err)
		if took := time.Since(began); len(asked) != 1 || took > 3*time.Minute {
			t.Errorf("after %v: elicitations %q, want one", took, asked)
		}
	})
}

func TestTaskResultIsCheckedAgainstOutputSchema(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/list": always(`{"tools":[{"name":"x","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}]}`),
		"tools/call": always(createdTask(``)),
		"tasks/get": inOrder(taskState("completed", `,"result":{"content":[],"structuredContent":{"n":"one"}}`),
			taskState("completed", `,"result":{"content":[],"structuredContent":{"n":1}}`)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		for _, err := range c.Tools(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := c.CallTool(t.Context(), "x", nil)
		wantInvalid(t, err)
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
		s.responses["tasks/get"] = always(taskState("completed", `,"result":{"content":[],"structuredContent":{"n":"one"}}`))
		h, err := tasks.Start(t.Context(), c, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Wait(t.Context())
		wantInvalid(t, err)
	})
}

// A request state of the server is not confused with one of the client.
func TestForeignRequestStateIsKept(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": inOrder(`{"resultType":"input_required","inputRequests":{"k":`+form("x")+`},"requestState":"t1"}`, `{"content":[{"type":"text","text":"done"}]}`),
	}}
	var asked []string
	runWithServer(t, s, answerForms(&asked), nil, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "x", nil)
		wantText(t, r, err, "done")
		s.wantRequests(t, "tools/call x", `tools/call x {"k":{"action":"accept","content":{"name":"x!"}}} t1`)
	})
}
