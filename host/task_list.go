package host

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// declare declares tasks in the form of the client of a request, if a server has them in any form.
func (c *callerTasks) declare(req *mcp.Request, caps *mcp.ServerCapabilities) {
	delete(caps.Extensions, extensionTasks)
	caps.Tasks = nil
	some, lists := false, false
	for _, sender := range c.senders() {
		s := sender.server()
		some = some || s.form() != noTasks
		lists = lists || s.lists()
	}
	switch {
	case !some:
	case isModern(req.Revision()):
		if caps.Extensions == nil {
			caps.Extensions = map[string]any{}
		}
		caps.Extensions[extensionTasks] = struct{}{}
	case coreTasks(req.Revision()) && lists:
		caps.Tasks = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
	case coreTasks(req.Revision()):
		caps.Tasks = json.RawMessage(`{"cancel":{},"requests":{"tools":{"call":{}}}}`)
	}
}

// A taskServe serves a request about tasks.
type taskServe func(ctx context.Context) (mcp.Result, error)

// A taskListing is how the tasks of a caller are listed.
type taskListing struct {
	cursors round.Cursors
	// send sends the request for a page, which the policy and the limits may refuse.
	send func(server string, req *mcp.Request, serve taskServe) (mcp.Result, error)
	// decide returns the part of a task that the policy allows.
	decide func(t *task, raw json.RawMessage) json.RawMessage
	// failed logs that the tasks of a server are missing.
	failed func(server string, err error)
}

// list serves tasks/list: the tasks of one server after the other.
func (c *callerTasks) list(req *mcp.Request, l *taskListing) (mcp.Result, error) {
	at, err := l.cursors.Open(req)
	if err != nil {
		return nil, err
	}
	tasks := []byte{}
	if at.Server == "" {
		for _, k := range c.kept.of(c.principal, "") {
			if _, err := c.open(k.handle); err != nil { // the caller may not use the server
				continue
			}
			tasks = append(append(append(tasks, `,{`...), k.members(k.status())[1:]...), '}')
		}
	}
	var names []string // of the servers that list tasks
	for _, sender := range c.senders() {
		if s := sender.server(); s.lists() {
			names = append(names, s.name)
		}
	}
	next := ""
	for n, name := range names {
		if at.Server != "" && at.Server != name {
			continue
		}
		sender := c.sender(name)
		raw, used, err := l.page(req, sender, name, at)
		if err != nil {
			if at.Cursor != "" { // the client has a part of its list
				return nil, err
			}
			at = round.Cursor{}
			l.failed(name, err)
			continue
		}
		tasks = append(tasks, c.listed(sender, name, used.class, raw, l.decide)...)
		next = l.cursors.After(names[n:], at, raw)
		break
	}
	b := append([]byte(`{"resultType":"complete","tasks":[`), strings.TrimPrefix(string(tasks), ",")...)
	if b = append(b, ']'); next != "" {
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), next)
	}
	return mcp.RawResult(append(b, '}')), nil
}

func (l *taskListing) page(
	req *mcp.Request, s taskSender, server string, at round.Cursor,
) (raw mcp.RawResult, used taskPlace, err error) {
	inner := *req
	inner.Params = []byte("{}")
	if at.Cursor != "" {
		inner.Params = append(jsonscan.AppendQuote([]byte(`{"cursor":`), at.Cursor), '}')
	}
	res, err := l.send(server, &inner, func(ctx context.Context) (res mcp.Result, err error) {
		res, used, err = s.send(ctx, &inner, taskPlace{anyClass: true})
		return res, err
	})
	raw, _ = res.(mcp.RawResult)
	return raw, used, err
}

// listed returns the tasks of a page, each after a comma, with the ids that the caller knows.
func (c *callerTasks) listed(
	s taskSender, server, class string, page []byte, decide func(*task, json.RawMessage) json.RawMessage,
) (tasks []byte) {
	if !jsonscan.IsObject(page) {
		return nil
	}
	list, _ := jsonscan.Get(page, "tasks")
	if jsonscan.Kind(list) != '[' {
		return nil
	}
	for raw := range jsonscan.Elements(list) {
		id := jsonscan.GetString(raw, "taskId")
		t, err := c.newTask(s, server, c.issued.find(c.principal, taskID{Server: server, Class: class, ID: id}))
		if id == "" || err != nil {
			continue
		}
		raw = decide(t, jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.handle)))
		tasks = append(append(tasks, ','), raw...)
	}
	return tasks
}
