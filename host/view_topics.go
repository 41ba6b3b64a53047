package host

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// topicTasks is the member of a filter that names tasks, and notificationTask the method of its
	// notifications. Spec: tasks extension, Task Status Notifications.
	topicTasks       = "taskIds"
	notificationTask = "notifications/tasks"
	// maxTaskTopics limits the tasks of a subscription.
	maxTaskTopics = 1000
)

// A topicListener subscribes a view to topics of a server.
type topicListener struct {
	view   *View
	pool   *upstream.Pool
	filter mcp.SubscriptionFilter
	tasks  map[string]*task.Task // by the id at the server
}

// topics returns the listeners of the topics of a subscription that the policy allows. It removes all
// topics from the filter.
func (s *subscribing) topics(
	ctx context.Context, f *mcp.SubscriptionFilter,
) (listeners map[*upstream.Pool]*topicListener) {
	v, wanted := s.view, maps.Clone(f.Topics)
	f.Topics = nil
	if string(wanted[listing.TopicEvents]) == "true" && task.IsModern(s.req.Revision()) &&
		v.caller.May(policy.ActionEvent) {
		setTopic(f, listing.TopicEvents, wanted[listing.TopicEvents])
	}
	delete(wanted, listing.TopicEvents)
	if len(wanted) == 0 || !task.IsModern(s.req.Revision()) {
		return nil
	}
	listeners = map[*upstream.Pool]*topicListener{}
	of := func(p *upstream.Pool) *topicListener {
		l := listeners[p]
		if l == nil {
			l = &topicListener{view: v, pool: p, tasks: map[string]*task.Task{}}
			l.filter.Topics = map[string]json.RawMessage{}
			listeners[p] = l
		}
		return l
	}
	v.table.Connect(ctx)
	for member, value := range wanted {
		if member == topicTasks {
			if task.FormOf(s.req) == task.Extended && v.caller.May(policy.ActionCall) {
				s.addTasks(ctx, value, of)
			}
		} else if p := serverPool(v.table.Extension(member)); p != nil && v.caller.Only == nil && !v.caller.ReadOnly &&
			s.allowsTopic(ctx, p, member, value) {
			of(p).filter.Topics[member] = value
		}
	}
	return listeners
}

// openTopics subscribes to topics at their servers, and adds to the filter the topics that the
// servers accepted. stops end the subscriptions.
func openTopics(
	ctx context.Context, listeners map[*upstream.Pool]*topicListener, f *mcp.SubscriptionFilter,
) (stops []func()) {
	var handles []string
	for _, l := range listeners { // usually a single listener
		agreed, stop := l.open(ctx)
		if len(agreed) == 0 {
			stop()
			continue
		}
		stops = append(stops, stop)
		for member, value := range agreed {
			if member == topicTasks {
				handles = append(handles, l.handles(value)...)
			} else {
				setTopic(f, member, value)
			}
		}
	}
	if len(handles) > 0 {
		slices.Sort(handles)
		if raw, err := json.Marshal(handles); err == nil {
			setTopic(f, topicTasks, raw)
		}
	}
	return stops
}

// allowsTopic reports whether the policy allows a topic of an extension, as it allows its methods.
func (s *subscribing) allowsTopic(ctx context.Context, p *upstream.Pool, topic string, value json.RawMessage) bool {
	a := s.action(policy.ActionOther, p.Name(), topic)
	a.Arguments = value
	return s.allows(ctx, a)
}

// decideTask returns the part of a task in a notification or a list that the policy allows. The policy
// decides as for the result of tasks/get. If it denies the result, only the status of the task remains.
func (v *View) decideTask(t *task.Task, params json.RawMessage) json.RawMessage {
	current := v.host.authorize.Policy()
	if current == nil {
		return params
	}
	a := &policy.Action{Kind: policy.ActionOther, Method: task.MethodGet, Caller: v.caller, Server: t.Server}
	ctx := v.host.ctx
	res, err := v.host.authorize.DecideResult(ctx, (*callView)(v), current, nil, v.resultAction(ctx, a, aboutTask(t)),
		mcp.RawResult(params), nil)
	if raw, ok := res.(mcp.RawResult); ok && err == nil {
		return json.RawMessage(raw)
	}
	for _, member := range []string{"result", "error", "inputRequests", "statusMessage"} {
		params = jsonscan.Without(params, member)
	}
	return params
}

func setTopic(f *mcp.SubscriptionFilter, member string, value json.RawMessage) {
	if f.Topics == nil {
		f.Topics = map[string]json.RawMessage{}
	}
	f.Topics[member] = value
}

// addTasks adds the tasks of a filter to the listeners of their servers. It omits IDs of tasks that
// do not belong to the caller, and tasks of servers for which the policy refuses the topic.
func (s *subscribing) addTasks(ctx context.Context, value []byte, of func(*upstream.Pool) *topicListener) {
	v := s.view
	if jsonscan.Kind(value) != '[' {
		return
	}
	n, allowed := 0, map[*upstream.Pool]bool{}
	for raw := range jsonscan.Elements(value) {
		handle, err := jsonscan.Unquote(raw)
		if err != nil {
			continue
		}
		t, err := v.tasks.Open(handle)
		if err != nil || t.ID == "" {
			continue
		}
		p := v.poolNamed(t.Server)
		if p == nil || routes.TaskForm(p) != task.Extended {
			continue
		}
		if n++; n > maxTaskTopics {
			return
		}
		if _, decided := allowed[p]; !decided {
			allowed[p] = s.allowsTopic(ctx, p, topicTasks, value)
		}
		if !allowed[p] {
			continue
		}
		of(p).tasks[t.ID] = t
	}
}

// open subscribes at the server, and returns the topics that the server accepted.
func (l *topicListener) open(ctx context.Context) (agreed map[string]json.RawMessage, stop func()) {
	if len(l.tasks) > 0 {
		ids := slices.Sorted(maps.Keys(l.tasks))
		l.filter.Topics[topicTasks], _ = json.Marshal(ids) // strings always encode
	}
	h := l.view.host
	running, cancel := context.WithCancel(upstream.WithCaller(h.ctx, l.view.caller))
	ready := make(chan map[string]json.RawMessage, 1)
	h.run(func() {
		defer close(ready)
		defer cancel()
		s, err := l.pool.Acquire(running, upstream.AnyClass)
		if err != nil {
			return
		}
		defer s.Release()
		defer context.AfterFunc(s.Context(), cancel)()
		first := true
		for e, err := range s.Client().Listen(running, l.filter) {
			if err != nil {
				return
			}
			if first && e.Kind == mcp.EventListening && e.Filter != nil {
				ready <- e.Filter.Topics
				first = false
			}
			if e.Kind == mcp.EventTopic {
				l.pass(e)
			}
		}
	})
	wait, end := context.WithTimeout(ctx, listing.SubscribeWait)
	defer end()
	select {
	case agreed = <-ready:
	case <-wait.Done():
	}
	return agreed, cancel
}

// handles returns the ids of tasks as the caller knows them.
func (l *topicListener) handles(ids []byte) (handles []string) {
	if jsonscan.Kind(ids) != '[' {
		return nil
	}
	for raw := range jsonscan.Elements(ids) {
		id, _ := jsonscan.Unquote(raw)
		if t := l.tasks[id]; t != nil {
			handles = append(handles, t.Handle)
		}
	}
	return handles
}

// pass passes a notification of a topic to the subscriptions of the view that contain the topic.
func (l *topicListener) pass(e mcp.Event) {
	if e.Method == notificationTask {
		t := l.tasks[jsonscan.GetString(e.Params, "taskId")]
		if t == nil {
			return
		}
		public := l.view.tasks.Public(t, jsonscan.Without(e.Params, "_meta"))
		e.Params = l.view.decideTask(t, json.RawMessage(public))
		quoted := jsonscan.AppendQuote(nil, t.Handle)
		e.Filter = &mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{topicTasks: quoted}}
	} else {
		e.Filter = &mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{}}
		for member, value := range l.filter.Topics {
			if member != topicTasks {
				e.Filter.Topics[member] = value
			}
		}
		e.Params = jsonscan.Without(e.Params, "_meta")
		l.view.host.recent.Add(l.view.principal, l.pool.Name())
	}
	l.view.changes.Send(mcp.Event{Kind: mcp.EventTopic, Method: e.Method, Params: e.Params, Filter: e.Filter})
}
