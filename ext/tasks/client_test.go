package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: TASKX-05, TASKX-11
func TestCallWaitsForTask(t *testing.T) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		t.Run(on.Transport, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{
				"tools/call": always(createdTask(`,"pollIntervalMs":5000`)),
				"tasks/get": inOrder(taskState("working", `,"pollIntervalMs":7000`), taskState("working", ``),
					taskState("completed", helloResult)),
			}}
			runWithServerOn(t, s, on, nil, nil, func(t *testing.T, c *mcp.Client) {
				r, err := c.CallTool(t.Context(), "slow", map[string]int{"n": 1})
				wantText(t, r, err, "hello")
				text, err := mcp.CallTool[string](t.Context(), c, "slow", nil)
				if err != nil || text != "hello" {
					t.Errorf("got %q, %v", text, err)
				}
				s.wantRequests(t, "tools/call slow", "tasks/get t1", "tasks/get t1", "tasks/get t1", "tools/call slow",
					"tasks/get t1")
				want := []time.Duration{5 * time.Second, 12 * time.Second, 13 * time.Second}
				if got := s.requestTimes("tasks/get")[:3]; !slices.Equal(got, want) {
					t.Errorf("requested after %v, want %v", got, want)
				}
			})
		})
	}
}

// Requirement: TASKX-01, EXT-11
func TestExtensionIsDeclaredInEveryRequest(t *testing.T) {
	own := &mcp.ClientOptions{Extensions: map[string]json.RawMessage{"com.example/x": json.RawMessage(`{"a":1}`)}}
	checked := func(respond responder) responder {
		return func(req *mcp.Request, n int) (string, error) {
			if e := req.Capabilities().Extensions; string(e[tasks.ID]) != "{}" || string(e["com.example/x"]) != `{"a":1}` {
				t.Errorf("%s: extensions of the client: %v", req.Method, e)
			}
			return respond(req, n)
		}
	}
	s := &fakeServer{responses: map[string]responder{
		"tools/list":   checked(always(`{"tools":[]}`)),
		"tools/call":   checked(inOrder(`{"content":[{"type":"text","text":"at once"}]}`, createdTask(``))),
		"tasks/get":    checked(always(taskState("input_required", `,"inputRequests":{"k":`+form("who")+`}`))),
		"tasks/update": checked(always(`{}`)),
		"tasks/cancel": checked(always(`{}`)),
	}}
	runWithServer(t, s, own, nil, func(t *testing.T, c *mcp.Client) {
		for _, err := range c.Tools(t.Context()) {
			t.Error(err)
		}
		r, err := c.CallTool(t.Context(), "quick", nil)
		wantText(t, r, err, "at once")
		h := start(t, c, "slow")
		if _, err := h.Get(t.Context()); err != nil {
			t.Error(err)
		}
		if err := h.Answer(t.Context(), map[string]any{"k": &mcp.ElicitResult{Action: mcp.ElicitDecline}}); err != nil {
			t.Error(err)
		}
		if err := h.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantRequests(t, "tools/list", "tools/call quick", "tools/call slow", "tasks/get t1",
			`tasks/update t1 {"k":{"action":"decline"}}`, "tasks/cancel t1")
	})
	if len(own.Extensions) != 1 || own.Middleware != nil {
		t.Errorf("Declare changed its argument: %+v", own)
	}
}

// A client with the extension uses a server without it as any other client does.
//
// Requirement: EXT-03
func TestClientFallsBackWithoutServerExtension(t *testing.T) {
	for _, combination := range mcptest.Combinations() {
		t.Run(combination.String(), func(t *testing.T) {
			s := &fakeServer{capabilities: `{"tools":{}}`, responses: map[string]responder{
				"tools/call": always(`{"content":[{"type":"text","text":"at once"}]}`),
			}}
			runWithServerOn(t, s, combination, nil, nil, func(t *testing.T, c *mcp.Client) {
				r, err := c.CallTool(t.Context(), "x", nil)
				wantText(t, r, err, "at once")
				h := start(t, c, "x")
				if h.ID() != "" {
					t.Errorf("Start created the task %q", h.ID())
				}
				r, err = h.Wait(t.Context())
				wantText(t, r, err, "at once")
				s.wantRequests(t, "tools/call x", "tools/call x")
			})
		})
	}
}

// The timeouts of a call do not apply to its task.
func TestTimeoutsAreSuspendedWhileTaskWorks(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": func(_ *mcp.Request, n int) (string, error) {
			if n < 4*3600 {
				return taskState("working", ``), nil
			}
			return taskState("completed", helloResult), nil
		},
	}}
	runWithServer(t, s, &mcp.ClientOptions{Timeout: time.Second, MaxTimeout: 2 * time.Second}, nil,
		func(t *testing.T, c *mcp.Client) {
			r, err := c.CallTool(t.Context(), "slow", nil)
			wantText(t, r, err, "hello")
		})
}

// Requirement: TASKX-13
func TestInputRequestsAreAnsweredOnce(t *testing.T) {
	a, b := `"a":`+form("first"), `"b":`+form("second")
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": inOrder(
			taskState("input_required", `,"inputRequests":{"b":`+form("second")+`,"z":`+form("third")+`}`),
			// The server repeats answered input requests until it has processed the answers.
			taskState("input_required", `,"inputRequests":{`+b+`,`+a+`}`),
			taskState("input_required", `,"inputRequests":{`+b+`,`+a+`}`),
			taskState("input_required", `,"inputRequests":{}`),
			taskState("working", ``),
			taskState("completed", helloResult)),
		"tasks/update": always(`{"resultType":"complete"}`),
	}}
	var asked []string
	runWithServer(t, s, answerForms(&asked), nil, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "ask", nil)
		wantText(t, r, err, "hello")
		s.wantRequests(t, "tools/call ask", "tasks/get t1",
			`tasks/update t1 {"b":{"action":"accept","content":{"name":"second!"}},"z":{"action":"accept","content":{"name":"third!"}}}`, "tasks/get t1",
			`tasks/update t1 {"a":{"action":"accept","content":{"name":"first!"}}}`, "tasks/get t1", "tasks/get t1", "tasks/get t1", "tasks/get t1")
		if want := []string{"second", "third", "first"}; !slices.Equal(asked, want) {
			t.Errorf("elicitations %q, want %q", asked, want)
		}
	})
}

// More input requests than the client accepts at once are asked in several rounds.
func TestManyInputRequestsAreAskedInRounds(t *testing.T) {
	var members []string
	for i := range 100 {
		members = append(members, fmt.Sprintf(`"k%d":%s`, i, form("q")))
	}
	s := &fakeServer{responses: map[string]responder{
		"tools/call":   always(createdTask(``)),
		"tasks/update": always(`{}`),
	}}
	s.responses["tasks/get"] = func(*mcp.Request, int) (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.count["tasks/update"] == 2 {
			return taskState("completed", helloResult), nil
		}
		return taskState("input_required", `,"inputRequests":{`+strings.Join(members, ",")+`}`), nil
	}
	var asked []string
	opts := answerForms(&asked)
	opts.ElicitationsPerMinute = 100
	runWithServer(t, s, opts, nil, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "ask", nil)
		wantText(t, r, err, "hello")
		if len(asked) != 100 {
			t.Errorf("%d elicitations, want 100", len(asked))
		}
	})
}

// Input requests of a task have the limits of those of a call.
//
// Requirement: TASKX-15
func TestInputRequestsOfTaskCountAsThoseOfCall(t *testing.T) {
	for name, test := range map[string]struct {
		question string
		opts     *mcp.ClientOptions
		want     string
	}{
		"not declared": {`{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`, nil,
			"method not found"},
		"unknown":           {`{"method":"tools/call","params":{}}`, nil, "method not found"},
		"URL without https": {`{"method":"elicitation/create","params":{"mode":"url","message":"x","url":"file:///etc/passwd","elicitationId":"1"}}`, nil, ""},
		"too many rounds":   {form("x"), &mcp.ClientOptions{MaxRounds: 3}, "requests input for the 4th time"},
		"no rounds":         {form("x"), &mcp.ClientOptions{MaxRounds: -1}, "requests input for the 1th time"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{
				"tools/call":   always(createdTask(``)),
				"tasks/update": always(`{}`),
				"tasks/cancel": always(`{}`),
				"tasks/get": func(_ *mcp.Request, n int) (string, error) {
					return taskState("input_required", fmt.Sprintf(`,"inputRequests":{"k%d":%s}`, n, test.question)), nil
				},
			}}
			var asked []string
			opts := answerForms(&asked)
			opts.ElicitURL = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				t.Error("ElicitURL was called")
				return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
			}
			if test.opts != nil {
				opts.MaxRounds = test.opts.MaxRounds
			}
			runWithServer(t, s, opts, nil, func(t *testing.T, c *mcp.Client) {
				_, err := c.CallTool(t.Context(), "ask", nil)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				synctest.Wait()
				if requests := s.requests(); requests[len(requests)-1] != "tasks/cancel t1" {
					t.Errorf("no tasks/cancel at the end: requests %q", requests)
				}
			})
		})
	}
}

// The client's functions may make requests with their context.
func TestElicitFunctionMayCallTools(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": func(req *mcp.Request, n int) (string, error) {
			switch l := line(req); {
			case strings.HasPrefix(l, "tools/call inner"):
				return `{"content":[{"type":"text","text":"inner"}]}`, nil
			case !strings.Contains(l, "accept"):
				return `{"resultType":"input_required","inputRequests":{"before":` + form("before") +
					`},"requestState":"s"}`, nil
			}
			return createdTask(``), nil
		},
		"tasks/get": inOrder(taskState("working", ``),
			taskState("input_required", `,"inputRequests":{"k":`+form("within")+`}`), taskState("completed", helloResult)),
		"tasks/update": always(`{}`),
	}}
	var c *mcp.Client
	opts := &mcp.ClientOptions{Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult,
		error) {
		r, err := c.CallTool(ctx, "inner", nil)
		wantText(t, r, err, "inner")
		return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
	}}
	runWithServer(t, s, opts, nil, func(t *testing.T, client *mcp.Client) {
		c = client
		h, err := tasks.Start(t.Context(), c, "outer", nil)
		if err != nil || h.ID() != "t1" || h.Tool() != "outer" {
			t.Fatalf("got %+v, %v", h, err)
		}
		r, err := h.Wait(t.Context())
		wantText(t, r, err, "hello")
		s.wantRequests(t, "tools/call outer", "tools/call inner",
			`tools/call outer {"before":{"action":"accept","content":{}}} s`,
			"tasks/get t1", "tasks/get t1", "tools/call inner", `tasks/update t1 {"k":{"action":"accept","content":{}}}`, "tasks/get t1")
	})
}

func TestFailedTaskReturnsItsError(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get":  always(taskState("failed", `,"error":{"code":-32603,"message":"quota","data":{"x":1}}`)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		_, err := c.CallTool(t.Context(), "x", nil)
		var fault *mcp.Error
		if !errors.As(err, &fault) || fault.Code != -32603 || fault.Message != "quota" ||
			string(fault.Data) != `{"x":1}` || !fault.Remote() {
			t.Errorf("got %#v", err)
		}
		s.wantRequests(t, "tools/call x", "tasks/get t1")
	})
}

func TestCancelledTaskReturnsErrCancelled(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get":  always(taskState("cancelled", `,"statusMessage":"by the operator"`)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		_, err := c.CallTool(t.Context(), "x", nil)
		if !errors.Is(err, mcp.ErrCancelled) || !strings.Contains(err.Error(), "by the operator") {
			t.Errorf("got %v", err)
		}
		s.wantRequests(t, "tools/call x", "tasks/get t1")
	})
}

// Requirement: TASKX-12
func TestToolErrorCompletesTask(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get":  always(taskState("completed", `,"result":{"content":[{"type":"text","text":"no"}],"isError":true}`)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "x", nil)
		if err != nil || !r.IsError {
			t.Errorf("got %+v, %v", r, err)
		}
		var failed *mcp.ToolError
		if _, err := mcp.CallTool[string](t.Context(), c, "x", nil); !errors.As(err, &failed) {
			t.Errorf("got %v", err)
		}
	})
}

// Requirement: TASKX-20
func TestEndedCallCancelsTask(t *testing.T) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		t.Run(on.Transport, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{
				"tools/call":   always(createdTask(``)),
				"tasks/get":    always(taskState("working", ``)),
				"tasks/cancel": always(`{"resultType":"complete"}`),
			}}
			runWithServerOn(t, s, on, nil, nil, func(t *testing.T, c *mcp.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer cancel()
				_, err := c.CallTool(ctx, "x", nil)
				var failed *mcp.TransportError
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &failed) || !failed.MayHaveRun {
					t.Errorf("got %v", err)
				}
				s.wantRequests(t, "tools/call x", "tasks/get t1", "tasks/get t1", "tasks/cancel t1")
			})
		})
	}
}

func TestCancellationHasTimeout(t *testing.T) {
	s := &fakeServer{
		responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": always(taskState("working", ``))},
		intercept: func(ctx context.Context, req *mcp.Request) error {
			if req.Method == "tasks/cancel" {
				<-ctx.Done()
			}
			return ctx.Err()
		},
	}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.CallTool(ctx, "x", nil)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 5500*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestCloseEndsCallThatWaits(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": always(taskState("working", ``))}}
	runWithServer(t, s, nil, &tasks.ClientOptions{Listen: true}, func(t *testing.T, c *mcp.Client) {
		ended := make(chan error, 1)
		go func() {
			_, err := c.CallTool(t.Context(), "x", nil)
			ended <- err
		}()
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, mcp.ErrClosed) || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestStartedReceivesHandle(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": always(taskState("completed", helloResult))}}
	var handles []string
	o := &tasks.ClientOptions{Started: func(_ context.Context,
		h *tasks.Handle) {
		handles = append(handles, h.Tool()+" "+h.ID())
	}}
	runWithServer(t, s, nil, o, func(t *testing.T, c *mcp.Client) {
		r, err := c.CallTool(t.Context(), "x", nil)
		wantText(t, r, err, "hello")
		if !slices.Equal(handles, []string{"x t1"}) {
			t.Errorf("got handles %q, want \"x t1\"", handles)
		}
	})
}

func TestStatusMessagesAreProgress(t *testing.T) {
	for name, test := range map[string]struct {
		own  []string
		want string
	}{
		"without numbers": {nil, "1/0 one;2/0 two;"},
		"with numbers": {[]string{`{"progressToken":%s,"progress":40.5,"total":100}`},
			"40.5/100 ;41/0 one;42/0 two;"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{
				"tools/call": func(req *mcp.Request, _ int) (string, error) {
					token, _ := req.Meta("progressToken")
					for _, note := range test.own {
						if err := req.Notify(t.Context(), "notifications/progress",
							json.RawMessage(fmt.Sprintf(note, token))); err != nil {
							t.Error(err)
						}
					}
					return createdTask(``), nil
				},
				"tasks/get": inOrder(taskState("working", `,"statusMessage":"one"`),
					taskState("working", `,"statusMessage":"one"`),
					taskState("working", ``), taskState("working", `,"statusMessage":"two"`), taskState("completed", helloResult)),
			}}
			runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				var notes string
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) {
					var total float64
					if u.Total != nil {
						total = *u.Total
					}
					notes += fmt.Sprintf("%v/%v %s;", u.Progress, total, u.Message)
				}})
				r, err := c.CallTool(ctx, "x", nil)
				wantText(t, r, err, "hello")
				if notes != test.want {
					t.Errorf("got %q, want %q", notes, test.want)
				}
			})
		})
	}
}

// Each round of a call has its own progressToken.
func TestProgressContinuesAfterQuestion(t *testing.T) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		t.Run(on.Transport, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{
				"tools/call": always(createdTask(``)),
				"tasks/get": inOrder(taskState("working", `,"statusMessage":"one"`),
					taskState("input_required", `,"inputRequests":{"k":`+form("who")+`}`),
					taskState("working", `,"statusMessage":"two"`), taskState("completed", `,"statusMessage":"three"`+helloResult)),
				"tasks/update": always(`{}`),
			}}
			runWithServerOn(t, s, on, answerForms(new([]string)), nil, func(t *testing.T, c *mcp.Client) {
				var notes []string
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) {
					notes = append(notes, fmt.Sprintf("%v %s", u.Progress, u.Message))
				}})
				r, err := c.CallTool(ctx, "x", nil)
				wantText(t, r, err, "hello")
				if want := []string{"1 one", "2 two", "3 three"}; !slices.Equal(notes, want) {
					t.Errorf("got %q, want %q", notes, want)
				}
			})
		})
	}
}

func TestFollowUpRequestsHaveTraceContext(t *testing.T) {
	const trace = `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": func(req *mcp.Request, _ int) (string, error) {
			if got, _ := req.Meta("traceparent"); string(got) != trace {
				t.Errorf("traceparent %s", got)
			}
			return taskState("completed", helloResult), nil
		},
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: mcp.Meta{"traceparent": json.RawMessage(trace)}})
		r, err := c.CallTool(ctx, "x", nil)
		wantText(t, r, err, "hello")
	})
}
