package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
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

// A question is sent to a client that supports its kind, not only its method. Other clients of the
// owner wait.
func TestQuestionGoesToClientThatSupportsItsKind(t *testing.T) {
	reply := object{"role": "assistant", "model": "m", "content": object{"type": "text", "text": "x"}}
	for name, tc := range map[string]struct {
		ask    func(ctx context.Context) error
		lacks  object
		answer object
	}{
		"url": {func(ctx context.Context) error { return mcp.AskURL(ctx, "q", "https://example.com/", "go") },
			object{"elicitation": object{"form": object{}}}, object{"action": "accept"}},
		"form": {func(ctx context.Context) error { _, err := mcp.Ask[string](ctx, "q", "?", nil); return err },
			object{"elicitation": object{"url": object{}}}, object{"action": "accept",
				"content": object{"value": "x"}}},
		"tools": {func(ctx context.Context) error {
			p := &mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{{Role: "user",
				Content: []mcp.ContentBlock{&mcp.TextContent{Text: "?"}}}},
				MaxTokens: 9, Tools: []*mcp.Tool{{Name: "t"}}}
			_, err := mcp.Sample(ctx, "q", p)
			return err
		}, object{"sampling": object{"context": object{}}}, reply},
		"context": {func(ctx context.Context) error {
			p := &mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{{Role: "user",
				Content: []mcp.ContentBlock{&mcp.TextContent{Text: "?"}}}},
				MaxTokens: 9, IncludeContext: "thisServer"}
			_, err := mcp.Sample(ctx, "q", p)
			return err
		}, object{"sampling": object{"tools": object{}}}, reply},
	} {
		add := func(b *testServer) {
			b.tool("ask", nil, func(ctx context.Context) (string, error) { return "answered", tc.ask(ctx) })
		}
		runOn(t, combinationsOf(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
			o := c.Options
			o.Capabilities = object{"elicitation": object{"form": object{}, "url": object{}},
				"sampling": object{"tools": object{}, "context": object{}}}
			o.Answer = func(string, json.RawMessage) (any, error) { return tc.answer, nil }
			full := c.Another(&o)
			id := beginTask(t, full, "ask", nil).TaskID
			synctest.Wait()
			limited := o
			limited.Capabilities = tc.lacks
			limited.Answer = func(method string, params json.RawMessage) (any, error) {
				t.Errorf("%s: a client without the capability got %s %s", name, method, params)
				return object{"action": "cancel"}, nil
			}
			p := c.Another(&limited).Send("tasks/result", object{"taskId": id})
			synctest.Wait()
			if got := getTask(t, full, id); got.Status != "input_required" {
				t.Fatalf("%s: %+v", name, got)
			}
			full.Call("tasks/result", object{"taskId": id})
			if got := decode[toolResult](t, p.Wait().Result); got.text() != "answered" {
				t.Errorf("%s: got %+v", name, got)
			}
		})
	}
}

// A client that accepts every form unchanged is not asked without limit.
func TestRepeatedInvalidAnswersFailTask(t *testing.T) {
	var runs atomic.Int32
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			runs.Add(1)
			return mcp.Ask[string](ctx, "name", "Who?", nil)
		})
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		runs.Store(0)
		id := beginTask(t, c, "ask", nil).TaskID
		synctest.Wait()
		for range 9 {
			answerOnce(t, c, id, object{})
			synctest.Wait()
		}
		if c.Modern() {
			if got := getTask(t, c, id); got.Status != "input_required" {
				t.Fatalf("after 9 answers: %+v", got)
			}
			answerOnce(t, c, id, object{})
		}
		got := finalTask(t, c, id)
		if got.Status != "failed" || got.Error == nil || got.Error.Code != mcp.CodeInvalidParams ||
			!strings.Contains(got.Error.Message, `"name"`) {
			t.Errorf("got %+v", got)
		}
		if n := runs.Load(); n != 11 {
			t.Errorf("the handler ran %d times, want 11", n)
		}
	})
}

// answerOnce answers all open input requests, once in the extension, and each time in sessions.
func answerOnce(t *testing.T, c *mcptest.Client, id string, content object) {
	if !c.Modern() && getTask(t, c, id).Status != "input_required" {
		return
	}
	answerTask(t, c, id, content)
}

// A valid answer resets the count of invalid ones.
func TestOnlyConsecutiveInvalidAnswersCount(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			for i := range 5 {
				if _, err := mcp.Ask[string](ctx, fmt.Sprint("q", i), "?", nil); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
	}
	runOn(t, []mcptest.Combination{mcptest.Since(mcptest.Modern)[0]}, nil, add,
		func(t *testing.T, b *testServer, c *mcptest.Client) {
			id := beginTask(t, c, "ask", nil).TaskID
			for range 5 {
				for range 9 {
					synctest.Wait()
					answerTask(t, c, id, object{"value": 1})
				}
				synctest.Wait()
				answerTask(t, c, id, object{"value": "x"})
			}
			if got := finalTask(t, c, id); got.Result.text() != "done" {
				t.Errorf("got %+v", got)
			}
		})
}

// A tool that asks without end fails.
func TestTaskHasQuestionLimit(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			if _, err := mcp.Ask[string](ctx, "first", "?", nil); err != nil {
				return "", err
			}
			all := make([]mcp.Question, 10_000)
			for i := range all {
				all[i] = mcp.FormQuestion(fmt.Sprint(i), "?", new(string), nil)
			}
			return "", mcp.AskAll(ctx, all...)
		})
	}
	runOn(t, []mcptest.Combination{mcptest.Since(mcptest.Modern)[0]}, nil, add,
		func(t *testing.T, b *testServer, c *mcptest.Client) {
			id := beginTask(t, c, "ask", nil).TaskID
			synctest.Wait()
			answerTask(t, c, id, object{"value": "x"})
			if got := finalTask(t, c, id); got.Status != "failed" || got.Error == nil ||
				!strings.Contains(got.Error.Message, "10000 questions") {
				t.Errorf("got %s, %v", got.Status, got.Error)
			}
		})
}

// Waiting tasks/result requests have a limit of their own, and do not count against the server's.
func TestTasksResultLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, nil, &mcp.ServerOptions{MaxInFlight: 10})
		b.tool("sleep", nil, func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		principalOptions := func(subject string) *mcptest.Options {
			return &mcptest.Options{Principal: &mcp.Principal{Issuer: "i", Subject: subject}}
		}
		eve := mcptest.Connect(t, b.server, combinationsOf(revision2025)[0], principalOptions("eve"))
		ada := mcptest.Connect(t, b.server, combinationsOf(revision2025)[0], principalOptions("ada"))
		id, of := beginTask(t, eve, "sleep", nil).TaskID, beginTask(t, ada, "sleep", nil).TaskID
		for range 4 {
			c := eve.Another(principalOptions("eve"))
			for range 250 {
				c.Send("tasks/result", object{"taskId": id})
			}
		}
		synctest.Wait()
		_, err := eve.Try("tasks/result", object{"taskId": id})
		wantCode(t, "above the limit", err, mcp.CodeBusy)
		p := ada.Send("tasks/result", object{"taskId": of})
		synctest.Wait()
		if _, err := ada.Try("tools/list", nil); err != nil || p.Answered() {
			t.Errorf("another principal: %v, answered %t", err, p.Answered())
		}
		eve.Call("tasks/cancel", object{"taskId": id})
		synctest.Wait()
		_, err = eve.Try("tasks/result", object{"taskId": id})
		wantCode(t, "of the cancelled task", err, mcp.CodeInternalError)
		b.closeServer(t)
	})
}

// A progressToken belongs to the session that sent it.
func TestProgressGoesToRequestingSession(t *testing.T) {
	add := func(b *testServer) {
		b.tool("work", nil, func(ctx context.Context) (string, error) {
			for i := range 5 {
				mcp.Progress(ctx, float64(i+1), 5, "step")
				time.Sleep(10 * time.Second)
			}
			return "ok", nil
		})
	}
	runOn(t, oneProcess(combinationsOf(revision2025)), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		id := beginTask(t, c, "work", object{"_meta": object{"progressToken": 7}}).TaskID
		other := c.Another(&c.Options)
		all := []*mcptest.Pending{
			other.Send("tasks/result", object{"taskId": id}),
			c.Send("tasks/result", object{"taskId": id}), c.Send("tasks/result", object{"taskId": id}),
		}
		time.Sleep(time.Minute)
		for _, p := range all {
			p.Wait()
		}
		if got := other.Notifications("notifications/progress"); len(got) != 0 {
			t.Errorf("the other session got %d notifications, want 0", len(got))
		}
		for i, n := range c.Notifications("notifications/progress") {
			if p := string(n.Params); !strings.Contains(p, `"progressToken":7`) ||
				!strings.Contains(p, fmt.Sprintf(`"progress":%d,`, i+1)) {
				t.Errorf("step %d: %s", i+1, p)
			}
		}
		if n := len(c.Notifications("notifications/progress")); n != 5 {
			t.Errorf("got %d notifications, want 5", n)
		}
	})
}

// An aliasingStore is a store that returns its own bytes, and counts concurrent reads.
type aliasingStore struct {
	tasks.Store
	pause time.Duration

	mu        sync.Mutex // guards the fields below
	cached    map[string]tasks.Record
	now, most int
}

func (s *aliasingStore) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(s.pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if r, ok := s.cached[id]; ok {
		return r, nil
	}
	r, err := s.Store.Get(ctx, owner, id)
	if err == nil && r.Done {
		s.cached[id] = r
	}
	return r, err
}

// Reading the state of a task does not depend on the size of its result.
func TestTasksGetDecodesHeadOnly(t *testing.T) {
	s := &aliasingStore{Store: tasks.NewMemory(), cached: map[string]tasks.Record{}}
	b := newTestServer(t, &tasks.Options{Store: s}, nil)
	const size = 8 << 20
	b.tool("large", nil, func(context.Context) (string, error) { return strings.Repeat("x", size), nil })
	c := mcptest.Connect(t, b.server, combinationsOf(revision2025)[0], &mcptest.Options{RealTime: true})
	id := beginTask(t, c, "large", nil).TaskID
	for getTask(t, c, id).Status != "completed" {
		runtime.Gosched()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const reads = 10
	for range reads {
		getTask(t, c, id)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / reads; each > size/8 {
		t.Errorf("tasks/get of a task with a result of %d bytes allocates %d bytes", size, each)
	}
	b.closeServer(t)
}

// Requests that wait for one task do not all read it at once when it ends.
func TestConcurrentTasksResultIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &aliasingStore{Store: tasks.NewMemory(), cached: map[string]tasks.Record{}, pause: time.Second}
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		b.tool("large", nil, func(context.Context) (string, error) {
			time.Sleep(time.Hour)
			return strings.Repeat("x", 1<<20), nil
		})
		c := mcptest.Connect(t, b.server, combinationsOf(revision2025)[0], nil)
		id := beginTask(t, c, "large", nil).TaskID
		var all []*mcptest.Pending
		for range 30 {
			all = append(all, c.Send("tasks/result", object{"taskId": id}))
		}
		time.Sleep(2 * time.Hour)
		for _, p := range all {
			if got := decode[toolResult](t, p.Wait().Result); len(got.text()) != 1<<20 {
				t.Errorf("got %d bytes", len(got.text()))
			}
		}
		if s.most > 10 {
			t.Errorf("%d concurrent reads, want at most 10", s.most)
		}
		b.closeServer(t)
	})
}
