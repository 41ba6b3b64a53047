package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// addSleepTool adds a tool that takes a minute and records the cause of its context.
func addSleepTool(b *testServer, name string, opts *tasks.ToolOptions) *atomic.Value {
	var cause atomic.Value
	b.tool(name, opts, func(ctx context.Context) (string, error) {
		select {
		case <-time.After(time.Minute):
			return "slept", nil
		case <-ctx.Done():
			cause.Store(context.Cause(ctx))
			return "late", nil
		}
	})
	return &cause
}

// A cancelled task stays cancelled, and its handler's context ends.
//
// Requirement: TASKD-15, TASKX-16, TASKX-21
func TestCancel(t *testing.T) {
	for _, combination := range mcptest.Since(revision2025) {
		var cause *atomic.Value
		runOn(t, []mcptest.Combination{combination}, nil, func(b *testServer) { cause = addSleepTool(b, "sleep", nil) },
			func(t *testing.T, b *testServer, c *mcptest.Client) {
				id := beginTask(t, c, "sleep", nil).TaskID
				synctest.Wait()
				raw := c.Call("tasks/cancel", object{"taskId": id})
				ack := decode[wireTask](t, raw)
				if c.Modern() {
					wantEmptyResult(t, raw)
				} else if ack.Status != "cancelled" {
					t.Errorf("response to tasks/cancel: %s", raw)
				}
				synctest.Wait()
				if got := getTask(t, c, id); got.Status != "cancelled" {
					t.Errorf("got %+v", got)
				}
				if got, _ := cause.Load().(error); !errors.Is(got, mcp.ErrCancelled) {
					t.Errorf("cancellation cause %v", got)
				}
				_, err := c.Try("tasks/cancel", object{"taskId": id})
				if c.Modern() != (err == nil) {
					t.Errorf("cancelled again: %v", err)
				}
				if !c.Modern() {
					wantCode(t, "cancelled again", err, mcp.CodeInvalidParams)
					_, err := c.Try("tasks/result", object{"taskId": id})
					wantCode(t, "the result", err, mcp.CodeInternalError)
				}
			})
	}
}

// wantEmptyResult fails the test unless raw has no members other than resultType and _meta.
func wantEmptyResult(t *testing.T, raw json.RawMessage) {
	t.Helper()
	got := decode[object](t, raw)
	delete(got, "_meta")
	if len(got) != 1 || got["resultType"] != "complete" {
		t.Errorf("got %s, want an empty result of type complete", raw)
	}
}

// A client that disconnects or cancels its request does not affect the task.
//
// Requirement: TASKX-20
func TestTaskContinuesAfterRequest(t *testing.T) {
	runOn(t, mcptest.Since(revision2025), nil, func(b *testServer) { addSleepTool(b, "sleep", nil) },
		func(t *testing.T, b *testServer, c *mcptest.Client) {
			o := c.Options
			other := c.Another(&o)
			params := object{"name": "sleep"}
			if !c.Modern() {
				params["task"] = object{}
			}
			p := other.Send("tools/call", params)
			created := decode[wireTask](t, p.Wait().Result)
			if created.Task != nil {
				created = *created.Task
			}
			other.Notify("notifications/cancelled", object{"requestId": json.RawMessage(p.ID.String())})
			time.Sleep(2 * time.Minute)
			if got := finalTask(t, c, created.TaskID); got.Result.text() != "slept" {
				t.Errorf("got %+v", got)
			}
		})
}

// A task that is not finished in time fails; a finished task is kept for a
// while, and then unknown.
//
// Requirement: TASKD-10, TASKX-28
func TestTimeToLive(t *testing.T) {
	for _, combination := range mcptest.Since(revision2025) {
		store := tasks.NewMemory()
		var cause *atomic.Value
		add := func(b *testServer) {
			cause = addSleepTool(b, "sleep", &tasks.ToolOptions{TTL: 30 * time.Second})
			b.tool("quick", &tasks.ToolOptions{TTL: time.Hour},
				func(context.Context) (string, error) { return "done", nil })
			b.tool("ask", &tasks.ToolOptions{TTL: 30 * time.Second}, func(ctx context.Context) (string, error) {
				return mcp.Ask[string](ctx, "q", "?", nil)
			})
		}
		runOn(t, []mcptest.Combination{combination}, &tasks.Options{Store: store}, add,
			func(t *testing.T, b *testServer, c *mcptest.Client) {
				late, waits := beginTask(t, c, "sleep", nil), beginTask(t, c, "ask", nil)
				done := beginTask(t, c, "quick", nil)
				time.Sleep(31 * time.Second)
				for _, id := range []string{late.TaskID, waits.TaskID} {
					got := finalTask(t, c, id)
					if got.Status != "failed" || got.Error == nil || !strings.Contains(got.Error.Message, "30s") {
						t.Errorf("got %+v", got)
					}
					if ttl := ttlOf(got); c.Modern() && ttl < 5*time.Minute {
						t.Errorf("ttl %v, want at least 5m", ttl)
					}
				}
				if err, _ := cause.Load().(error); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("cancellation cause %v", err)
				}
				time.Sleep(6 * time.Minute)
				_, err := c.Try("tasks/get", object{"taskId": late.TaskID})
				wantCode(t, "an expired task", err, mcp.CodeInvalidParams)
				if got := finalTask(t, c, done.TaskID); got.Result.text() != "done" || c.Modern() &&
					ttlOf(got) != time.Hour {
					t.Errorf("got %+v", got)
				}
				time.Sleep(2 * time.Hour)
				if n, _, err := store.CountAll(t.Context()); n != 0 || err != nil {
					t.Errorf("%d tasks in the store, want 0; error %v", n, err)
				}
			})
	}
}

func ttlOf(got wireTask) time.Duration {
	if got.TTLMs != nil {
		return time.Duration(*got.TTLMs) * time.Millisecond
	}
	if got.TTL != nil {
		return time.Duration(*got.TTL) * time.Millisecond
	}
	return 0
}

// A client of 2025-11-25 chooses the TTL, up to that of the tool.
//
// Requirement: TASKD-10
func TestTTLOfClient(t *testing.T) {
	add := func(b *testServer) { addSleepTool(b, "sleep", &tasks.ToolOptions{TTL: time.Hour}) }
	runOn(t, combinationsOf(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		for asked, want := range map[float64]time.Duration{60_000: time.Minute, 1e300: time.Hour, 0: time.Second,
			0.5: time.Second, 7_200_000: time.Hour} {
			created := beginTask(t, c, "sleep", object{"task": object{"ttl": asked}})
			if ttlOf(created) != want {
				t.Errorf("requested %v ms, got %v, want %v", asked, ttlOf(created), want)
			}
		}
		if got := ttlOf(beginTask(t, c, "sleep", nil)); got != time.Hour {
			t.Errorf("without a ttl: got %v, want 1h", got)
		}
	})
}

func combinationsOf(revision string) []mcptest.Combination {
	return slices.DeleteFunc(mcptest.Since(revision),
		func(on mcptest.Combination) bool { return on.Revision != revision })
}

// oneProcess omits several processes: a process sends the progress of its tasks only to requests that it serves.
func oneProcess(all []mcptest.Combination) []mcptest.Combination {
	return slices.DeleteFunc(all, func(on mcptest.Combination) bool { return on.Transport == mcptest.Replicas })
}

// Keys are unique; partial answers are stored, unknown keys ignored, wrong
// shapes refused, and invalid answers asked again.
//
// Requirement: TASKX-14, TASKX-16, TASKX-17
func TestAnswers(t *testing.T) {
	var runs atomic.Int32
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			runs.Add(1)
			var name string
			var age int
			err := mcp.AskAll(ctx, mcp.FormQuestion("name", "Who?", &name, nil),
				mcp.FormQuestion("age", "How old?", &age, nil))
			if err != nil {
				return "", err
			}
			sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
			if err != nil {
				return "", err
			}
			if !sure {
				return "no", nil
			}
			return name, nil
		})
	}
	runOn(t, mcptest.Since(mcptest.Modern), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		runs.Store(0)
		id := beginTask(t, c, "ask", nil).TaskID
		open := func() (keys []string) {
			t.Helper()
			synctest.Wait()
			for key := range getTask(t, c, id).InputRequests {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			return keys
		}
		update := func(responses object) *mcp.Error {
			t.Helper()
			raw, err := c.Try("tasks/update", object{"taskId": id, "inputResponses": responses})
			if err == nil {
				wantEmptyResult(t, raw)
			}
			return err
		}
		accept := func(v any) object { return object{"action": "accept", "content": object{"value": v}} }
		want := func(keys ...string) {
			t.Helper()
			if got := open(); !slices.Equal(got, keys) {
				t.Fatalf("open: %v, want %v", got, keys)
			}
		}
		want("age.1", "name.2")
		for _, bad := range []any{nil, 1, []int{}, object{}, object{"action": "maybe"},
			object{"action": "accept", "content": 1}} {
			wantCode(t, "an invalid answer", update(object{"age.1": bad}), mcp.CodeInvalidParams)
		}
		_, err := c.Try("tasks/update", object{"taskId": id, "inputResponses": []int{}})
		wantCode(t, "invalid answers", err, mcp.CodeInvalidParams)
		_, err = c.Try("tasks/update", object{"taskId": id})
		wantCode(t, "no answers", err, mcp.CodeInvalidParams)
		if err := update(object{"age": accept(1), "none.7": accept(1), "name.1": accept("x")}); err != nil {
			t.Error(err)
		}
		want("age.1", "name.2")
		if err := update(object{"age.1": accept("old")}); err != nil {
			t.Error(err)
		}
		want("name.2")
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
		if err := update(object{"name.2": accept("Ada"), "age.1": accept(3)}); err != nil {
			t.Error(err)
		}
		want("age.3") // "old" is not a number, and 3 came too late
		if err := update(object{"age.3": accept(36)}); err != nil {
			t.Error(err)
		}
		want("sure.4")
		if err := update(object{"sure.4": accept(true)}); err != nil {
			t.Error(err)
		}
		want()
		if got := getTask(t, c, id); got.Status != "completed" || got.Result.text() != "Ada" {
			t.Errorf("got %+v", got)
		}
		if err := update(object{"sure.4": accept(false)}); err != nil {
			t.Errorf("an answer after the end: %v", err)
		}
		if runs.Load() != 4 {
			t.Errorf("%d runs, want 4", runs.Load())
		}
	})
}

// Concurrent answers are all stored, and the handler runs once with them.
func TestConcurrentAnswers(t *testing.T) {
	const n = 20
	var runs atomic.Int32
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			runs.Add(1)
			answers := make([]int, n)
			var all []mcp.Question
			for i := range n {
				all = append(all, mcp.FormQuestion(string(rune('a'+i)), "?", &answers[i], nil))
			}
			if err := mcp.AskAll(ctx, all...); err != nil {
				return "", err
			}
			sum := 0
			for _, a := range answers {
				sum += a
			}
			return strings.Repeat("x", sum), nil
		})
	}
	runOn(t, mcptest.Since(mcptest.Modern), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		runs.Store(0)
		id := beginTask(t, c, "ask", nil).TaskID
		synctest.Wait()
		var wg sync.WaitGroup
		for key := range getTask(t, c, id).InputRequests {
			for range 2 {
				wg.Go(func() {
					p := c.Send("tasks/update",
						object{"taskId": id,
							"inputResponses": object{key: object{"action": "accept", "content": object{"value": 1}}}})
					if m := p.Wait(); m.Error != nil {
						t.Error(m.Error)
					}
				})
			}
		}
		wg.Wait()
		if got := finalTask(t, c, id); len(got.Result.text()) != n || runs.Load() != 2 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
	})
}

// With ManualStart, questions before Begin belong to the call. Effects within Once happen
// once.
//
// Requirement: TASKX-02, TASKX-09
func TestQuestionsBeforeTheTask(t *testing.T) {
	var effects atomic.Int32
	add := func(b *testServer) {
		b.tool("manual", &tasks.ToolOptions{ManualStart: true, Required: true},
			func(ctx context.Context) (string, error) {
				if _, err := mcp.Once(ctx, "effect",
					func(context.Context) (int32, error) { return effects.Add(1), nil }); err != nil {
					return "", err
				}
				name, err := mcp.Ask[string](ctx, "name", "Who?", nil)
				if err != nil {
					return "", err
				}
				if err := tasks.Begin(ctx); err != nil {
					return "", err
				}
				if err := tasks.Begin(ctx); err != nil {
					return "", err
				}
				color, err := mcp.Ask[string](ctx, "color", "Which?", nil)
				if err != nil {
					return "", err
				}
				return name + " " + color, nil
			})
		b.tool("direct", &tasks.ToolOptions{ManualStart: true},
			func(context.Context) (string, error) { return "at once", nil })
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		effects.Store(0)
		c.Options.Answer = func(string, json.RawMessage) (any, error) {
			return object{"action": "accept", "content": object{"value": "Ada"}}, nil
		}
		params := object{"name": "manual"}
		if !c.Modern() {
			params["task"] = object{}
		}
		created := decode[wireTask](t, c.Call("tools/call", params))
		if created.Task != nil {
			created = *created.Task
		}
		synctest.Wait()
		if got := getTask(t, c, created.TaskID); got.Status != "input_required" {
			t.Fatalf("got %+v", got)
		}
		answerTask(t, c, created.TaskID, object{"value": "red"})
		if got := finalTask(t, c, created.TaskID); got.Result.text() != "Ada red" || effects.Load() != 1 {
			t.Errorf("%d effects, got %+v", effects.Load(), got)
		}
		params["name"] = "direct"
		raw := c.Call("tools/call", params)
		if c.Modern() {
			if got := decode[toolResult](t, raw); got.text() != "at once" {
				t.Errorf("got %s", raw)
			}
			return
		}
		// TASKD-06: a task-augmented request creates a task.
		created = *decode[wireTask](t, raw).Task
		if got := finalTask(t, c, created.TaskID); created.Status != "working" || got.Status != "completed" ||
			got.Result.text() != "at once" {
			t.Errorf("got %+v, then %+v", created, got)
		}
	})
}

// Invalid arguments are an error of the call. If the client requested a task, the task
// fails with it. A call without arguments to decode is an error.
//
// Requirement: TASKD-06
func TestWrongArguments(t *testing.T) {
	add := func(b *testServer) {
		tasks.AddTool(b.Server, &mcp.Tool{Name: "add"}, nil,
			func(_ context.Context, in struct{ A int }) (int, error) { return in.A, nil })
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		// As the TypeScript client sends it.
		params := object{"name": "add", "arguments": object{"A": "x"}, "task": object{"ttl": 60_000},
			"_meta": object{"progressToken": 1}}
		raw := c.Call("tools/call", params)
		if c.Modern() {
			if got := decode[toolResult](t, raw); !got.IsError {
				t.Errorf("got %s", raw)
			}
			return
		}
		created := decode[wireTask](t, raw).Task
		if created == nil || created.TTL == nil || created.CreatedAt.IsZero() || created.LastUpdatedAt.IsZero() ||
			strings.Contains(string(raw), "content") {
			t.Fatalf("got %s", raw)
		}
		if got := finalTask(t, c, created.TaskID); got.Status != "failed" || !got.Result.IsError ||
			!strings.Contains(got.Result.text(), "A") {
			t.Errorf("got %+v", got)
		}
		params["name"] = "none"
		_, err := c.Try("tools/call", params)
		wantCode(t, "an unknown tool", err, mcp.CodeMethodNotFound)
		params["name"], params["arguments"] = "add", 5
		if _, err = c.Try("tools/call", params); err == nil {
			t.Error("a call with invalid arguments created a task")
		}
	})
}

// A subscription is notified of each state, and at once if the task is not working.
//
// Requirement: TASKX-22, EXT-09
func TestListen(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) { return mcp.Ask[string](ctx, "q", "?", nil) })
	}
	runOn(t, mcptest.Since(mcptest.Modern), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		id := beginTask(t, c, "ask", nil).TaskID
		synctest.Wait()
		ids, _ := json.Marshal([]string{id, "unknown", id})
		stop := c.Listen(mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": ids}})
		defer stop()
		acks := c.Notifications("notifications/subscriptions/acknowledged")
		if ack := string(acks[0].Params); !strings.Contains(ack, `"taskIds":["`+id+`"]`) {
			t.Errorf("acknowledged %s", ack)
		}
		c.Await(1, "notifications/tasks")
		answerTask(t, c, id, object{"value": "x"})
		synctest.Wait()
		all := c.Notifications("notifications/tasks")
		first, last := decode[wireTask](t, all[0].Params), decode[wireTask](t, all[len(all)-1].Params)
		if first.Status != "input_required" || len(first.InputRequests) != 1 || last.Status != "completed" ||
			last.Result.text() != "x" {
			t.Errorf("got %+v ... %+v", first, last)
		}
		for _, bad := range []any{"x", 1, []int{1}} {
			_, err := c.Try("subscriptions/listen", object{"notifications": object{"taskIds": bad}})
			wantCode(t, "a bad filter", err, mcp.CodeInvalidParams)
		}
	})
}
