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

type person struct {
	Name string `json:"name"`
}

// countResult is the structured output of a tool.
type countResult struct {
	N int `json:"n"`
}

// addTools adds one tool of each kind.
func addTools(b *testServer, opts *tasks.ToolOptions) {
	b.tool("nap", opts, func(ctx context.Context) (string, error) {
		for i := range 5 {
			mcp.Progress(ctx, float64(i+1), 5, fmt.Sprintf("step %d", i+1))
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return "rested", nil
	})
	b.tool("meet", opts, func(ctx context.Context) (string, error) {
		first, err := mcp.Ask[person](ctx, "me", "who are you?", nil)
		if err != nil {
			return "", err
		}
		second, err := mcp.Ask[person](ctx, "friend", "and your friend?", nil)
		if err != nil {
			return "", err
		}
		return first.Name + " and " + second.Name, nil
	})
	b.tool("fail", opts, func(context.Context) (string, error) { return "", errors.New("out of paper") })
	b.tool("refuse", opts, func(context.Context) (string, error) { return "", mcp.Errorf(-31000, "closed today") })
	tasks.AddTool(b.Server, &mcp.Tool{Name: "count"}, opts,
		func(context.Context, struct{}) (countResult, error) { return countResult{7}, nil })
}

// runInAll runs body for each combination, with and without support for tasks.
func runInAll(t *testing.T, combinations []mcptest.Combination, tool *tasks.ToolOptions, opts *mcp.ClientOptions,
	o *tasks.ClientOptions, body func(t *testing.T, on mcptest.Combination, c *mcp.Client)) {
	t.Helper()
	for _, on := range combinations {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestServer(t, nil, nil)
				addTools(b, tool)
				t.Cleanup(func() { b.closeServer(t) })
				body(t, on, mcptest.Dial(t, b.server, on, tasks.Declare(opts, o)))
			})
		})
	}
}

// answerNames answers elicitations with a name.
func answerNames(asked *[]string) *mcp.ClientOptions {
	return &mcp.ClientOptions{Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		*asked = append(*asked, p.Message)
		name := []string{"Ada", "Bob"}[(len(*asked)-1)%2]
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"` + name + `"}`)}, nil
	}}
}

// A call returns the same result whether it becomes a task or not.
func TestCallReturnsSameResultWithAndWithoutTask(t *testing.T) {
	for name, tool := range map[string]*tasks.ToolOptions{"optional": nil, "required": {Required: true}} {
		t.Run(name, func(t *testing.T) {
			combinations := mcptest.Since("2025-06-18") // which asks the client
			if tool != nil {
				combinations = mcptest.Since(revision2025)
			}
			for _, listens := range []bool{false, true} {
				var asked []string
				runInAll(t, combinations, tool, answerNames(&asked), &tasks.ClientOptions{Listen: listens},
					func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
						asked = nil
						r, err := c.CallTool(t.Context(), "nap", nil)
						wantText(t, r, err, "rested")
						r, err = c.CallTool(t.Context(), "meet", nil)
						wantText(t, r, err, "Ada and Bob")
						if want := []string{"who are you?", "and your friend?"}; !slices.Equal(asked, want) {
							t.Errorf("elicitations %q, want %q", asked, want)
						}
						r, err = c.CallTool(t.Context(), "fail", nil)
						if err != nil || !r.IsError || !strings.Contains(r.Text(), "out of paper") {
							t.Errorf("got %+v, %v", r, err)
						}
						var fault *mcp.Error
						if _, err := c.CallTool(t.Context(), "refuse", nil); !errors.As(err, &fault) ||
							fault.Code != -31000 || fault.Message != "closed today" {
							t.Errorf("got %v", err)
						}
						for _, err := range c.Tools(t.Context()) {
							if err != nil {
								t.Fatal(err)
							}
						}
						if n, err := mcp.CallTool[countResult](t.Context(), c, "count", nil); err != nil || n.N != 7 {
							t.Errorf("got %+v, %v", n, err)
						}
					})
			}
		})
	}
}

func TestHandleFromStartToResult(t *testing.T) {
	var asked []string
	runInAll(t, mcptest.Since(revision2025), nil, answerNames(&asked), nil,
		func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
			asked = nil
			h := start(t, c, "nap")
			if h.ID() == "" {
				t.Fatal("not a task")
			}
			task, err := h.Get(t.Context())
			if err != nil || task.Status != tasks.StatusWorking || task.ID != h.ID() || task.Created.IsZero() ||
				task.TTL != 24*time.Hour || task.PollInterval != time.Second {
				t.Errorf("got %+v, %v", task, err)
			}
			states, err := collectUpdates(t.Context(), tasks.Resume(c, h.ID()))
			if err != nil || len(states) < 3 || states[len(states)-1] != "completed step 5" &&
				states[len(states)-1] != "completed" {
				t.Errorf("got %q, %v", states, err)
			}
			r, err := tasks.Resume(c, h.ID()).Wait(t.Context())
			wantText(t, r, err, "rested")

			met := start(t, c, "meet")
			r, err = met.Wait(t.Context())
			wantText(t, r, err, "Ada and Bob")
			if task, err := met.Get(t.Context()); err != nil || task.Status != tasks.StatusCompleted ||
				!strings.Contains(string(task.Result), "Ada and Bob") {
				t.Errorf("got %+v, %v", task, err)
			}
		})
}

func TestHandleCancel(t *testing.T) {
	runInAll(t, mcptest.Since(revision2025), nil, nil, nil, func(t *testing.T, on mcptest.Combination,
		c *mcp.Client) {
		h := start(t, c, "nap")
		ended := make(chan error, 1)
		go func() {
			_, err := h.Wait(t.Context())
			ended <- err
		}()
		time.Sleep(3 * time.Second)
		if err := h.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, mcp.ErrCancelled) {
			t.Errorf("got %v", err)
		}
		if task, err := h.Get(t.Context()); err != nil || task.Status != tasks.StatusCancelled {
			t.Errorf("got %+v, %v", task, err)
		}
		if err := h.Cancel(t.Context()); (err != nil) != !on.Modern() {
			t.Errorf("cancelled again: %v", err)
		}
	})
}

// The handler ends when its call ends.
//
// Requirement: TASKX-20
func TestEndedCallEndsHandler(t *testing.T) {
	for _, tool := range []*tasks.ToolOptions{nil, {Required: true}} {
		var h *tasks.Handle
		o := &tasks.ClientOptions{Started: func(_ context.Context, started *tasks.Handle) { h = started }}
		runInAll(t, mcptest.Since(revision2025), tool, nil, o, func(t *testing.T, on mcptest.Combination,
			c *mcp.Client) {
			h = nil
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if _, err := c.CallTool(ctx, "nap", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if isTask := tool != nil || on.Modern(); (h != nil) != isTask {
				t.Fatalf("handle %+v", h)
			}
			if h == nil {
				return
			}
			if task, err := h.Get(t.Context()); err != nil || task.Status != tasks.StatusCancelled {
				t.Errorf("got %+v, %v", task, err)
			}
		})
	}
}

func TestTaskProgressReachesCaller(t *testing.T) {
	runInAll(t, mcptest.Since(revision2025), &tasks.ToolOptions{Required: true}, nil, nil,
		func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
			var notes []string
			ctx := mcp.WithCallOptions(t.Context(),
				mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) { notes = append(notes, u.Message) }})
			r, err := c.CallTool(ctx, "nap", nil)
			wantText(t, r, err, "rested")
			if all := strings.Join(notes, ";"); !strings.Contains(all, "step 2") || !strings.Contains(all, "step 4") ||
				len(notes) > 6 {
				t.Errorf("got %q", notes)
			}
		})
}

func TestAnswerFromAnotherClient(t *testing.T) {
	var asked []string
	runInAll(t, mcptest.Since(mcptest.Modern), nil, answerNames(&asked), nil,
		func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
			h := tasks.Resume(c, start(t, c, "meet").ID())
			for _, name := range []string{"Ada", "Bob"} {
				var open map[string]mcp.InputRequest
				for task, err := range h.Updates(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if open = task.InputRequests; len(open) == 1 {
						break
					}
				}
				for key := range open {
					answer := &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"` + name +
						`"}`)}
					if err := h.Answer(t.Context(), map[string]any{key: answer}); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, err := h.Wait(t.Context())
			wantText(t, r, err, "Ada and Bob")
			if len(asked) > 0 {
				t.Errorf("elicitations %q, want none", asked)
			}
		})
}
