package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A broadcaster calls functions when tasks change.
type broadcaster struct {
	mu        sync.Mutex // guards the field below
	listeners map[string]map[*listener]struct{}
}

// A listener is called for each change of a task, or of the progress of its run, from any
// goroutine. It must not block.
type listener func(progress bool)

// subscribe adds a listener for the task, until stop is called. It does not check the owner.
func (b *broadcaster) subscribe(id string, l listener) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[string]map[*listener]struct{}{}
	}
	if b.listeners[id] == nil {
		b.listeners[id] = map[*listener]struct{}{}
	}
	b.listeners[id][&l] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.listeners[id], &l); len(b.listeners[id]) == 0 {
			delete(b.listeners, id)
		}
	}
}

// ids returns the tasks with listeners.
func (b *broadcaster) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.listeners))
}

func (b *broadcaster) notify(id string, progress bool) {
	b.mu.Lock()
	listeners := slices.Collect(maps.Keys(b.listeners[id]))
	b.mu.Unlock()
	for _, l := range listeners {
		(*l)(progress)
	}
}

// maxSubscribed is the number of tasks that a subscription may name.
const maxSubscribed = 1000

// The member of a subscriptions/listen filter that names tasks, and the notification for them.
//
// Spec: tasks extension, Task Status Notifications.
const (
	topicTasks        = "taskIds"
	notificationTasks = "notifications/tasks"
)

// openTopic subscribes a client to the tasks in ids that are its own, and returns their ids. It
// notifies at once of tasks that do not work, because their status may be different since the
// client read it.
func (s *Server) openTopic(
	ctx context.Context, req *mcp.Request, member json.RawMessage, changed func(key string),
) (any, func(), error) {
	if _, ok := s.form(req).(serverExtension); !ok || !declared(req) {
		return nil, nil, driver.MissingClientCapability(capability)
	}
	var ids []string
	if err := jsonv2.Unmarshal(member, &ids); err != nil {
		return nil, nil, mcp.Errorf(mcp.CodeInvalidParams, "params.notifications.taskIds: want an array of strings")
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > maxSubscribed {
		return nil, nil, mcp.Errorf(mcp.CodeInvalidParams, "params.notifications.taskIds: more than %d", maxSubscribed)
	}
	if err := s.join(ctx); err != nil {
		return nil, nil, err
	}
	var stops []func()
	stopAll := func() {
		for _, stop := range stops {
			stop()
		}
	}
	accepted := []string{}
	owner := req.Principal.Key()
	for _, id := range ids {
		// Subscribe before the task is read, so that no change is missed.
		stop := s.changes.subscribe(id, func(bool) { changed(id) })
		j, err := s.readHead(ctx, owner, id)
		if errors.Is(err, errUnknownTask) {
			stop()
			continue
		}
		stops = append(stops, stop)
		if err != nil {
			stopAll()
			return nil, nil, err
		}
		if accepted = append(accepted, id); j.Phase != phaseWorking {
			changed(id)
		}
	}
	return accepted, stopAll, nil
}

// topicParams returns the params of a notification: the task as tasks/get returns it. It returns
// nil for a task that is gone.
func (s *Server) topicParams(ctx context.Context, req *mcp.Request, id string) (json.RawMessage, error) {
	t, err := serverExtension{serverNone{s}}.detailed(ctx, req.Principal.Key(), id)
	if errors.Is(err, errUnknownTask) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return jsonv2.Marshal(t, jsonv2.Deterministic(true))
}
