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
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestTASKX06_OnlyToolCallsBecomeTasks(t *testing.T) {
	s := &script{on: map[string]step{
		"prompts/get": always(created(``)), "resources/read": always(created(``)), "tools/list": always(created(``)),
		"tasks/get": always(created(``)),
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		_, err := c.GetPrompt(t.Context(), "x", nil)
		wantInvalid(t, err)
		_, err = c.ReadResource(t.Context(), "x:y")
		wantInvalid(t, err)
		for _, err := range c.Tools(t.Context()) {
			wantInvalid(t, err)
		}
		_, err = tasks.Resume(c, "t1").Get(t.Context())
		wantInvalid(t, err)
		if n := len(s.said()); n != 4 {
			t.Errorf("the client said %q", s.said())
		}
	})
}

// A client that has not declared the extension refuses tasks.
func TestTASKX06_UndeclaredTaskIsInvalid(t *testing.T) {
	s := &script{on: map[string]step{"tools/call": always(created(``))}}
	synctest.Test(t, func(t *testing.T) {
		c := mcptest.Dial(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
		_, err := c.CallTool(t.Context(), "x", nil)
		wantInvalid(t, err)
		h, err := tasks.Start(t.Context(), c, "x", nil)
		if h != nil {
			t.Errorf("got a handle: %+v", h)
		}
		wantInvalid(t, err)
		s.on["tasks/get"] = always(seen("working", ``))
		if _, err := tasks.Resume(c, "t1").Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "Declare") {
			t.Errorf("got %v", err)
		}
		s.on["tasks/get"] = failing(mcp.CodeMissingRequiredClientCapability, "no")
		if _, err := tasks.Resume(c, "t1").Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "Declare") {
			t.Errorf("got %v", err)
		}
	})
}

func TestInvalidTasksAreRefused(t *testing.T) {
	many := strings.Repeat(`"%d":{"method":"x"},`, 1001)
	var n []any
	for i := range 1001 {
		n = append(n, i)
	}
	many = strings.TrimSuffix(fmt.Sprintf(many, n...), ",")
	for name, raw := range map[string]string{
		"no id":                      `{"status":"working"}`,
		"an empty id":                `{"taskId":"","status":"working"}`,
		"an id that is not a string": `{"taskId":7,"status":"working"}`,
		"an endless id":              `{"taskId":"` + strings.Repeat("x", 5000) + `","status":"working"}`,
		"another id":                 `{"taskId":"t2","status":"working"}`,
		"no status":                  `{"taskId":"t1"}`,
		"an unknown status":          seen("resting", ``),
		"no result":                  seen("completed", ``),
		"a result that is text":      seen("completed", `,"result":"x"`),
		"a result that asks":         seen("completed", `,"result":{"resultType":"input_required","requestState":"x"}`),
		"a result that is a task":    seen("completed", `,"result":`+created(``)),
		"a result of nothing":        seen("completed", `,"result":{"content":{}}`),
		"no error":                   seen("failed", ``),
		"an error of nothing":        seen("failed", `,"error":{}`),
		"an error without code":      seen("failed", `,"error":{"message":"x"}`),
		"no questions":               seen("input_required", ``),
		"questions in a row":         seen("input_required", `,"inputRequests":[]`),
		"a question of nothing":      seen("input_required", `,"inputRequests":{"k":{}}`),
		"a question that is text":    seen("input_required", `,"inputRequests":{"k":"x"}`),
		"questions without end":      seen("input_required", `,"inputRequests":{`+many+`}`),
		"a task in a task":           `{"task":` + seen("working", ``) + `}`,
		"asks itself":                `{"resultType":"input_required","requestState":"x","taskId":"t1","status":"working"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{on: map[string]step{"tools/call": always(created(``)), "tasks/get": always(raw),
				"tasks/cancel": always(`{}`)}}
			onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				_, err := c.CallTool(t.Context(), "x", nil)
				wantInvalid(t, err)
				if name == "a result of nothing" {
					return // the task has ended
				}
				s.wantSaid(t, "tools/call x", "tasks/get t1", "tasks/cancel t1")
				_, err = tasks.Resume(c, "t1").Get(t.Context())
				wantInvalid(t, err)
			})
		})
	}
}

func TestInvalidCreatedTasksAreRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"nested":            `{"resultType":"task","task":` + seen("working", ``) + `}`,
		"no id":             `{"resultType":"task","status":"working"}`,
		"an unknown status": `{"resultType":"task","taskId":"t1","status":"new"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{on: map[string]step{"tools/call": always(raw)}}
			onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
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
		`,"pollInterval":9000`:            time.Second, // that of the other form
		`,"pollIntervalMs":9223372036854`: time.Second, // no time that anybody waits
	} {
		t.Run(raw, func(t *testing.T) {
			s := &script{on: map[string]step{"tools/call": always(created(raw)),
				"tasks/get": always(seen("completed", hello))}}
			onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				_, err := c.CallTool(t.Context(), "x", nil)
				if at := s.saidAt("tasks/get"); err != nil || len(at) != 1 || at[0] != want {
					t.Errorf("asked after %v, want %v (%v)", at, want, err)
				}
			})
		})
	}
}

// Requests are repeated while the server restarts or is busy.
func TestPollingSurvivesServerErrors(t *testing.T) {
	for name, trouble := range map[string]error{
		"busy":       &mcp.Error{Code: mcp.CodeBusy, Message: "busy", Data: []byte(`{"retryAfterMs":20000}`)},
		"unwell":     mcp.Errorf(mcp.CodeInternalError, "internal error"),
		"unheard of": &mcp.TransportError{Method: "x", Err: errors.New("connection refused")},
		"gone":       &mcp.TransportError{Method: "x", MayHaveRun: true, Err: mcp.ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{on: map[string]step{
				"tools/call": always(created(``)),
				"tasks/get": func(_ *mcp.Request, n int) (string, error) {
					switch {
					case n == 0:
						return seen("input_required", `,"inputRequests":{"k":`+form("x")+`}`), nil
					case n < 5:
						return "", trouble
					}
					return seen("completed", hello), nil
				},
				"tasks/update": func(_ *mcp.Request, n int) (string, error) {
					if n < 2 {
						return "", trouble
					}
					return `{}`, nil
				},
			}}
			var asked []string
			onScript(t, s, answering(&asked), nil, func(t *testing.T, c *mcp.Client) {
				began := time.Now()
				r, err := c.CallTool(t.Context(), "x", nil)
				wantText(t, r, err, "hello")
				if took := time.Since(began); name == "busy" && took < 6*20*time.Second {
					t.Errorf("a busy server was asked again too early: it took %v", took)
				}
				if len(asked) != 1 {
					t.Errorf("asked %q", asked)
				}
			})
		})
	}
}

func TestPollingEndsAfterMaxOutage(t *testing.T) {
	s := &script{on: map[string]step{
		"tools/call": always(created(``)),
		"tasks/get": func(*mcp.Request, int) (string, error) {
			return "", &mcp.TransportError{Method: "tasks/get", Err: errors.New("connection refused")}
		},
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if took := time.Since(began); took < 2*time.Minute || took > 3*time.Minute || err == nil ||
			!strings.Contains(err.Error(), `task "t1": no response for`) {
			t.Errorf("after %v: %v", took, err)
		}
		if n := len(s.saidAt("tasks/get")); n > 20 {
			t.Errorf("asked %d times", n)
		}
	})
}

// A server that does not respond makes the call fail, too.
func TestPollingEndsWithoutResponses(t *testing.T) {
	s := &script{
		on: map[string]step{"tools/call": always(created(``))},
		waits: func(ctx context.Context, req *mcp.Request) error {
			if req.Method == "tools/call" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took > 5*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestRefusalEndsCall(t *testing.T) {
	for _, code := range []int{mcp.CodeInvalidParams, mcp.CodeMethodNotFound, mcp.CodeMissingRequiredClientCapability,
		-31999} {
		s := &script{on: map[string]step{"tools/call": always(created(``)), "tasks/get": failing(code, "no such task")}}
		onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
			_, err := c.CallTool(t.Context(), "x", nil)
			var fault *mcp.Error
			if !errors.As(err, &fault) || fault.Code != code {
				t.Errorf("got %v", err)
			}
			s.wantSaid(t, "tools/call x", "tasks/get t1")
		})
	}
}

func TestTASKX28_PollingEndsAfterTTL(t *testing.T) {
	s := &script{on: map[string]step{
		"tools/call":   always(strings.Replace(created(``), `"ttlMs":null`, `"ttlMs":1000`, 1)),
		"tasks/get":    always(strings.Replace(seen("working", ``), `"ttlMs":null`, `"ttlMs":600000`, 1)),
		"tasks/cancel": always(`{}`),
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took < 11*time.Minute ||
			took > 12*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
		if said := s.said(); said[len(said)-1] != "tasks/cancel t1" {
			t.Errorf("the task goes on")
		}
	})
}

// A server that reuses a key gets no second answer, and the call ends.
func TestTASKX14_AnsweredKeyIsNotAskedAgain(t *testing.T) {
	s := &script{on: map[string]step{
		"tools/call": always(created(``)),
		"tasks/get": func(_ *mcp.Request, n int) (string, error) {
			return seen("input_required", `,"inputRequests":{"k":`+form(fmt.Sprint("question ", n))+`}`), nil
		},
		"tasks/update": always(`{}`), "tasks/cancel": always(`{}`),
	}}
	var asked []string
	onScript(t, s, answering(&asked), nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		wantInvalid(t, err)
		if took := time.Since(began); len(asked) != 1 || took > 3*time.Minute {
			t.Errorf("after %v: asked %q", took, asked)
		}
	})
}

func TestTaskResultIsCheckedAgainstOutputSchema(t *testing.T) {
	s := &script{on: map[string]step{
		"tools/list": always(`{"tools":[{"name":"x","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}]}`),
		"tools/call": always(created(``)),
		"tasks/get": inTurn(seen("completed", `,"result":{"content":[],"structuredContent":{"n":"one"}}`),
			seen("completed", `,"result":{"content":[],"structuredContent":{"n":1}}`)),
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
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
		s.on["tasks/get"] = always(seen("completed", `,"result":{"content":[],"structuredContent":{"n":"one"}}`))
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
	s := &script{on: map[string]step{
		"tools/call": inTurn(`{"resultType":"input_required","inputRequests":{"k":`+form("x")+`},"requestState":"t1"}`, `{"content":[{"type":"text","text":"done"}]}`),
	}}
	var asked []string
	onScript(t, s, answering(&asked), nil, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "x", nil)
		wantText(t, r, err, "done")
		s.wantSaid(t, "tools/call x", `tools/call x {"k":{"action":"accept","content":{"name":"x!"}}} t1`)
	})
}
