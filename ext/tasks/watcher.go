package tasks

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// watchers are those who wait for news of tasks, by the tasks' ids. They have been checked to be the owner.
type watchers struct {
	mu  sync.Mutex // guards the field below
	all map[string]map[*watcher]struct{}
}

// A watcher is called for each change of a task, and for steps of a run's progress, from any goroutine, and must not wait
// for anything.
type watcher struct{ changed, stepped func() }

// add calls one of both from now on, until stop.
func (w *watchers) add(id string, changed, stepped func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[string]map[*watcher]struct{}{}
	}
	if w.all[id] == nil {
		w.all[id] = map[*watcher]struct{}{}
	}
	one := &watcher{changed, stepped}
	w.all[id][one] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.all[id], one); len(w.all[id]) == 0 {
			delete(w.all, id)
		}
	}
}

// wake tells all who wait for news of a task that it has changed.
func (w *watchers) wake(id string) {
	for _, one := range w.of(id) {
		one.changed()
	}
}

// step tells them that its run has come further.
func (w *watchers) step(id string) {
	for _, one := range w.of(id) {
		one.stepped()
	}
}

func (w *watchers) of(id string) []*watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.all[id]))
}

// maxListened is the number of tasks that one subscription may name: more than one client follows at once.
const maxListened = 1000

// topic lets clients listen to their tasks.
//
// Spec: tasks extension, Task Status Notifications.
func (s *Server) topic() mcp.Topic {
	return mcp.Topic{Method: "notifications/tasks", Open: s.open, Params: s.news}
}

// open takes the ids that a client wants to hear of, and agrees to those that are its own. A task that has stopped working
// meanwhile is told at once: its client may not know yet.
func (s *Server) open(ctx context.Context, req *mcp.Request, member stdjson.RawMessage, changed func(key string)) (any, func(), error) {
	if dialectOf(req) != dialectExtension || !declared(req) {
		return nil, nil, mcp.MissingCapability(capability)
	}
	var ids []string
	if err := json.Unmarshal(member, &ids); err != nil {
		return nil, nil, mcp.Errorf(mcp.CodeInvalidParams, "params.notifications.taskIds: want an array of strings")
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > maxListened {
		return nil, nil, mcp.Errorf(mcp.CodeInvalidParams, "params.notifications.taskIds: more than %d", maxListened)
	}
	var stops []func()
	stop := func() {
		for _, s := range stops {
			s()
		}
	}
	agreed := []string{}
	owner := req.Principal.Key()
	for _, id := range ids {
		// Before the task is looked at: what happens from here on is told.
		tell := func() { changed(id) }
		leave := s.watchers.add(id, tell, tell)
		j, err := s.glance(ctx, owner, id)
		if errors.Is(err, errUnknownTask) {
			leave()
			continue
		}
		stops = append(stops, leave)
		if err != nil {
			stop()
			return nil, nil, err
		}
		if agreed = append(agreed, id); j.Phase != phaseWorking {
			changed(id)
		}
	}
	return agreed, stop, nil
}

// news returns a task as tasks/get would give it now.
func (s *Server) news(ctx context.Context, req *mcp.Request, id string) (stdjson.RawMessage, error) {
	j, err := s.seen(ctx, req.Principal.Key(), id)
	if errors.Is(err, errUnknownTask) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(s.detailed(j), json.Deterministic(true))
}
