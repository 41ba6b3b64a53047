package host_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// recordLog is a recorder. It is safe for concurrent use.
type recordLog struct {
	full bool // it stores no intents

	mu  sync.Mutex // guards all
	all []*event.Record
}

func (l *recordLog) Record(r *event.Record) error {
	if l.full && r.Event == event.Intent {
		return errors.New("the disk is full")
	}
	kept := *r
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, &kept)
	return nil
}

// texts returns the records of a method, without intents: event, server, target and rule.
func (l *recordLog) texts(method string) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all {
		if r.Method == method && r.Event != event.Intent {
			text := strings.TrimSpace(strings.Join([]string{string(r.Event), r.Server, r.Target, r.Rule}, " "))
			all = append(all, strings.Join(strings.Fields(text), " "))
		}
	}
	return all
}

// refusal returns the error of the last request of a method that was refused.
func (l *recordLog) refusal(method string) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all {
		if r.Method == method && r.Event == event.Refused {
			err = r.Err
		}
	}
	return err
}

// A request that cancels a task counts for the rate of its caller.
//
// Requirement: HOST-06
func TestRateOfTaskRequests(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := openTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up, `{"limits": {"perCaller": "1/h burst 2"}}`)
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		task := start(t, c, "a__doze")
		if err := task.Cancel(t.Context()); err != nil {
			t.Errorf("within the rate: %v", err)
		}
		for range 3 {
			if err := task.Cancel(t.Context()); err == nil || !strings.Contains(err.Error(), "limits.perCaller of 1/h burst 2") {
				t.Errorf("above the rate: got %v", err)
			}
		}
	})
}

// Requests about a result that the host keeps for a client are limited, decided and recorded like requests
// about tasks of the server.
//
// Requirement: HOST-06, HOST-23
func TestRequestsAboutKeptResults(t *testing.T) {
	on := mcptest.Combination{Transport: "in-memory", Revision: "2025-11-25"}
	var log recordLog
	closed := ""
	h := newHostWith(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, host.Options{Recorder: &log,
		Policy: policyFunc(func(a *policy.Action) policy.Decision {
			if a.Kind == policy.ActionOther && a.Method == closed || a.Kind == policy.ActionResult && a.Target == closed {
				return policy.Decision{Rule: "closed"}
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		})})
	c := mcptest.Dial(t, h.For(person("ada")), on, answering())
	id := map[string]any{"taskId": start(t, c, "a__plain").ID()}
	for _, method := range []string{"tasks/get", "tasks/result"} {
		if _, err := c.Do(t.Context(), method, id); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		closed = method
		if _, err := c.Do(t.Context(), method, id); err == nil || !strings.Contains(err.Error(), "denied by rule closed") {
			t.Errorf("%s: got %v in spite of a rule", method, err)
		}
		if got, want := log.texts(method), []string{"end a", "refused a closed"}; !slices.Equal(got, want) {
			t.Errorf("%s is recorded as %q, want %q", method, got, want)
		}
	}
	closed = "plain"
	if raw, err := c.Do(t.Context(), "tasks/result", id); err == nil {
		t.Errorf("got %s in spite of a rule about results of the tool", raw)
	}
	closed = ""
	if _, err := c.Do(t.Context(), "tasks/cancel", id); err == nil || len(log.texts("tasks/cancel")) != 1 {
		t.Errorf("tasks/cancel: got %v, recorded as %q", err, log.texts("tasks/cancel"))
	}
}

// Requests with an unknown id of a task are recorded.
//
// Requirement: HOST-23
func TestUnknownTasksAreRecorded(t *testing.T) {
	for _, down := range oneProcess(mcptest.Combinations()) {
		if !hasTasks(down) {
			continue
		}
		var log recordLog
		h := newHostWith(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, host.Options{Recorder: &log})
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := tasks.Resume(c, "nothing").Cancel(t.Context()); !isUnknownTask(err) {
			t.Errorf("%v: got %v", down, err)
		}
		if got, want := log.texts("tasks/cancel"), []string{"refused"}; !slices.Equal(got, want) {
			t.Errorf("%v: recorded as %q, want %q", down, got, want)
		}
	}
}
