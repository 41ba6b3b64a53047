package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// forEachTaskPair is [forEachPair] for the revisions with tasks.
func forEachTaskPair(t *testing.T, f func(t *testing.T, up, down mcptest.Combination)) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if hasTasks(up) && hasTasks(down) {
			f(t, up, down)
		}
	})
}

func person(name string) *policy.Caller {
	return &policy.Caller{Principal: &mcp.Principal{Issuer: "https://issuer.example", Subject: name}}
}

func answering() *mcp.ClientOptions {
	return tasks.Declare(&mcp.ClientOptions{Elicit: yes}, nil)
}

func isUnknownTask(err error) bool {
	var refused *mcp.Error
	return errors.As(err, &refused) && refused.Code == mcp.CodeInvalidParams &&
		strings.Contains(refused.Message, "unknown task")
}

// The task of one principal does not exist for another one, in spite of a server that both share.
func TestTaskOfOtherPrincipal(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		s := newTaskServer(t, "a")
		h := openTaskHost(t, map[string]mcp.Handler{"a": s}, up, `{"servers":{"a":{"share":"shared"}}}`)
		ada := mcptest.Dial(t, h.For(person("ada")), down, answering())
		bob := mcptest.Dial(t, h.For(person("bob")), down, answering())
		task := start(t, ada, "a__meet")
		foreign := tasks.Resume(bob, task.ID())
		if _, err := foreign.Get(t.Context()); !isUnknownTask(err) {
			t.Errorf("get: got %v", err)
		}
		if _, err := foreign.Wait(t.Context()); !isUnknownTask(err) {
			t.Errorf("wait: got %v", err)
		}
		if err := foreign.Cancel(t.Context()); !isUnknownTask(err) {
			t.Errorf("cancel: got %v", err)
		}
		wantResult(t, task, "a true true")
	})
}

// The operator sees the tasks of callers of every form with the tool, the open question and the
// result, and ends them.
func TestOperatorSeesTasks(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
		op := h.Operator()
		questions := make(chan string)
		ada := mcptest.Dial(t, h.For(person("ada")), down, tasks.Declare(&mcp.ClientOptions{
			Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				if all := op.Tasks.Tasks(); len(all) > 0 {
					questions <- all[0].Question
				}
				return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
			}}, nil))
		meet := start(t, ada, "a__meet")
		ended := make(chan error, 1)
		go func() {
			_, err := meet.Wait(t.Context())
			ended <- err
		}()
		if got := <-questions; got != "First?" {
			t.Errorf("got the question %q, want First?", got)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		now, result, err := op.Task(t.Context(), op.Tasks.Tasks()[0].ID, "tasks/result")
		if err != nil || now.Tool != "meet" || now.Owner.Principal.Subject != "ada" || !now.HasResult ||
			!strings.Contains(string(result), "isError") {
			t.Errorf("got %+v, %s, %v", now, result, err)
		}
		nap := start(t, ada, "a__nap")
		all := op.Tasks.Tasks()
		id := all[slices.IndexFunc(all, func(t status.Task) bool { return t.Tool == "nap" })].ID
		if now, _, err := op.Task(t.Context(), id, "tasks/cancel"); err != nil || now.Tool != "nap" {
			t.Errorf("cancel: got %+v, %v", now, err)
		}
		if task, err := nap.Get(t.Context()); err != nil || task.Status != tasks.StatusCancelled {
			t.Errorf("the caller got %+v, %v, want a cancelled task", task, err)
		}
		if _, _, err := op.Task(t.Context(), id, "tasks/cancel"); !errors.Is(err, operator.ErrTaskEnded) {
			t.Errorf("cancel again: got %v", err)
		}
	})
}

// A task that its server forgot is listed as unknown, until the server describes it again.
func TestForgottenTaskIsUnknown(t *testing.T) {
	s := newTaskServer(t, "a")
	var forgets atomic.Bool
	s.Use(func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "tasks/get" && forgets.Load() {
				return nil, mcp.Errorf(mcp.CodeInvalidParams, "no such task")
			}
			res, err := next.ServeMCP(ctx, req)
			if req.Method == "tasks/get" { // a wrong time must not hide the task from operators
				res = mcp.RawResult(`{"resultType":"complete","taskId":"t","status":"working","ttlMs":-5,` +
					`"createdAt":"2001-01-01T00:00:00Z","lastUpdatedAt":"2001-01-01T00:00:00Z"}`)
			}
			return res, err
		})
	})
	on := mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}
	h := newTaskHost(t, map[string]mcp.Handler{"a": s}, on)
	nap, op := start(t, mcptest.Dial(t, h.For(person("ada")), on, answering()), "a__nap"), h.Operator()
	forgets.Store(true)
	if _, _, err := op.Task(t.Context(), op.Tasks.Tasks()[0].ID, "tasks/result"); !errors.Is(err, operator.ErrNoTask) {
		t.Errorf("got %v, want ErrNoTask", err)
	}
	if all := op.Tasks.Tasks(); len(all) != 1 || all[0].Status != "unknown" || all[0].HasResult {
		t.Errorf("got %+v, want one unknown task", all)
	}
	forgets.Store(false)
	_, _ = nap.Get(t.Context()) // fails because of the negative time
	if all := op.Tasks.Tasks(); len(all) != 1 || all[0].Status != "working" || !all[0].Expires.IsZero() {
		t.Errorf("after the server remembered the task: %+v, want a working task", all)
	}
}

// Ids are valid after a restart of the host with the same keys, and not with others.
func TestTaskAfterRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		s := newTaskServer(t, "a")
		servers := map[string]mcp.Handler{"a": s}
		first := mcptest.Dial(t, newTaskHost(t, servers, up).For(person("ada")), down, answering())
		nap, meet := start(t, first, "a__nap"), start(t, first, "a__meet")
		if _, err := meet.Get(t.Context()); err != nil {
			t.Error(err)
		}
		second := mcptest.Dial(t, newTaskHost(t, servers, up).For(person("ada")), down, answering())
		wantResult(t, tasks.Resume(second, meet.ID()), "a true true")
		wantResult(t, tasks.Resume(second, nap.ID()), "a rested")
		if runs := s.runs.Load(); runs != 1 {
			t.Errorf("the tool ran %d times", runs)
		}
		other := openHost(t, servers, up, "{}", "", [][]byte{slices.Repeat([]byte{8}, 32)})
		c := mcptest.Dial(t, other.For(person("ada")), down, answering())
		if _, err := tasks.Resume(c, nap.ID()).Get(t.Context()); !isUnknownTask(err) {
			t.Errorf("with another key: got %v", err)
		}
	})
}

// A view of one server has tasks, too, and a subscription to a task ends the wait for it at once.
func TestTaskInSingleMode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a"), "b": newTaskServer(t, "b")}, up)
		c := mcptest.Dial(t, h.For(&policy.Caller{Server: "a"}), down, tasks.Declare(&mcp.ClientOptions{Elicit: yes}, nil))
		wantResult(t, start(t, c, "nap"), "a rested")
		wantResult(t, start(t, c, "meet"), "a true true")
	})
}

// Callers of a single server connect at once, and each learns that the server runs tasks.
func TestCallersOfASingleServerConnectAtOnce(t *testing.T) {
	up := mcptest.Combination{Transport: mcptest.InMemory, Revision: "2026-07-28"}
	h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
	var connecting sync.WaitGroup
	for n := range 50 {
		connecting.Go(func() {
			view := h.For(&policy.Caller{Server: "a", Session: fmt.Sprint(n)})
			c, err := mcp.Connect(t.Context(), mcp.InMemory(view), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if _, ok := c.Capabilities().Extensions["io.modelcontextprotocol/tasks"]; !ok {
				t.Errorf("got %+v, want tasks", c.Capabilities())
			}
			_ = c.Close()
		})
	}
	connecting.Wait()
}

// Status changes reach the subscriptions of the caller, under the id that the caller knows.
func TestTaskSubscription(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !down.Modern() {
			return // has no subscriptions to tasks
		}
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a"), "b": newTaskServer(t, "b")}, up)
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		nap := start(t, c, "b__nap")
		ids, _ := json.Marshal([]string{nap.ID(), "none"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		filter := mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": ids}}
		for e, err := range c.Listen(ctx, filter) {
			if err != nil {
				t.Fatal(err)
			}
			switch e.Kind {
			case mcp.EventListening:
				var agreed []string
				_ = json.Unmarshal(e.Filter.Topics["taskIds"], &agreed)
				if !up.Modern() {
					if agreed != nil {
						t.Errorf("the server cannot notify, and the subscription has %q", agreed)
					}
					return
				}
				if len(agreed) != 1 || agreed[0] != nap.ID() {
					t.Errorf("the subscription has %q", agreed)
				}
			case mcp.EventTopic:
				var seen struct{ TaskID, Status string }
				if err := json.Unmarshal(e.Params, &seen); err != nil || e.Method != "notifications/tasks" ||
					seen.TaskID != nap.ID() {
					t.Fatalf("got %s %s, %v", e.Method, e.Params, err)
				}
				if seen.Status == "completed" {
					return
				}
			}
		}
		t.Error("the end was not announced")
	})
}

// Results that the host keeps for one principal are not removed by those of another one.
func TestKeptResultsOfOtherPrincipal(t *testing.T) {
	up := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
	down := mcptest.Combination{Transport: "in-memory", Revision: "2025-11-25"}
	h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
	ada := mcptest.Dial(t, h.For(person("ada")), down, answering())
	bob := mcptest.Dial(t, h.For(person("bob")), down, answering())
	task := start(t, ada, "a__plain")
	const many = 1001 // more than the host keeps
	for range many {
		start(t, bob, "a__plain")
	}
	wantResult(t, task, "plain")
}

// The lists of the servers merge, for clients of the revision that has lists.
func TestTaskList(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if down.Modern() {
			return
		}
		servers := map[string]mcp.Handler{}
		for _, name := range []string{"a", "b"} {
			s := newTaskServer(t, name)
			servers[name] = mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				inner := *req // lists are for authenticated clients
				inner.Principal = &mcp.Principal{Issuer: "i", Subject: "host"}
				return s.ServeMCP(ctx, &inner)
			})
		}
		h := newTaskHost(t, servers, up)
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		want := []string{}
		for _, tool := range []string{"a__nap", "b__nap", "b__meet"} {
			want = append(want, start(t, c, tool).ID())
		}
		list, err := mcp.Collect(tasks.List(t.Context(), c))
		if up.Modern() {
			if err == nil {
				t.Errorf("a server of the extension has no list: got %v", list)
			}
			return
		}
		var got []string
		for _, task := range list {
			got = append(got, task.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

// Questions of a task go to the client of the task, while a call of another principal is in
// progress at the same server.
//
// Requirement: HOST-31
func TestQuestionOfTaskBesideCall(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		s := newTaskServer(t, "a")
		started, release := make(chan struct{}), make(chan struct{})
		mcp.AddTool(s.Server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
			close(started)
			<-release
			return "slow", nil
		})
		h := openTaskHost(t, map[string]mcp.Handler{"a": s}, up, `{"servers":{"a":{"share":"shared"}}}`)
		bob := mcptest.Dial(t, h.For(person("bob")), down, &mcp.ClientOptions{Timeout: time.Hour,
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				t.Error("the question of the task reached the client of a call")
				return &mcp.ElicitResult{Action: mcp.ElicitCancel}, nil
			}})
		var wait sync.WaitGroup
		defer wait.Wait()
		defer close(release)
		wait.Go(func() {
			if got, err := mcp.CallTool[string](t.Context(), bob, "a__slow", nil); err != nil || got != "slow" {
				t.Errorf("got %q, %v", got, err)
			}
		})
		<-started
		ada := mcptest.Dial(t, h.For(person("ada")), down, answering())
		wantResult(t, start(t, ada, "a__meet"), "a true true")
	})
}

// Ids of hostile clients are unknown tasks, or those of the caller.
func FuzzTaskID(f *testing.F) {
	f.Add("")
	f.Add("none")
	f.Add("AQQoE8cJAAAAAAAAAACVP2YMDfp5OykwUpY0MPdqnirUyDB73dcT06at1KwgT7MpX2ihAeBGu3wZJj3d2F8OcbN4U6zBwS")
	f.Fuzz(func(t *testing.T, id string) {
		h := openHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")},
			mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}, "{}", "", nil)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern},
			answering())
		if _, err := tasks.Resume(c, id).Get(t.Context()); !isUnknownTask(err) {
			t.Errorf("%q: got %v", id, err)
		}
	})
}

// The tasks of a caller that starts too many are forgotten, the first task first, for operators as well.
func TestOperatorSeesTheLatestTasks(t *testing.T) {
	const most = 200
	on := mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}
	h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, on)
	c, op := mcptest.Dial(t, h.For(person("ada")), on, answering()), h.Operator()
	start(t, c, "a__nap")
	first := op.Tasks.Tasks()[0].ID
	if _, _, err := op.Task(t.Context(), first, "tasks/get"); err != nil {
		t.Errorf("the first task: %v", err)
	}
	for range most {
		start(t, c, "a__nap")
	}
	all := op.Tasks.Tasks()
	if len(all) != most {
		t.Errorf("got %d tasks, want %d", len(all), most)
	}
	if _, _, err := op.Task(t.Context(), first, "tasks/get"); !errors.Is(err, operator.ErrNoTask) {
		t.Errorf("the first of %d tasks: got %v, want ErrNoTask", most+1, err)
	}
	for i := range all {
		if now, _, err := op.Task(t.Context(), all[i].ID, "tasks/get"); err != nil || now.ID != all[i].ID {
			t.Fatalf("task %d: got %+v, %v", i, now, err)
		}
	}
}
