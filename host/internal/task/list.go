package task

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Declare declares tasks in the form of the client of a request, if a server supports them in any
// form.
func (c *Caller) Declare(req *mcp.Request, caps *mcp.ServerCapabilities) {
	caps.Extensions = maps.Clone(caps.Extensions) // which all callers of the connection share
	delete(caps.Extensions, Extension)
	caps.Tasks = nil
	some, lists := false, false
	for _, sender := range c.Senders() {
		s := sender.Info()
		some = some || s.Form() != None
		lists = lists || s.Lists()
	}
	switch {
	case !some:
	case IsModern(req.Revision()):
		if caps.Extensions == nil {
			caps.Extensions = map[string]any{}
		}
		caps.Extensions[Extension] = struct{}{}
	case coreTasks(req.Revision()) && lists:
		caps.Tasks = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
	case coreTasks(req.Revision()):
		caps.Tasks = json.RawMessage(`{"cancel":{},"requests":{"tools":{"call":{}}}}`)
	}
}

// A Serve serves a request about tasks.
type Serve func(ctx context.Context) (mcp.Result, error)

// A Listing is how the tasks of a caller are listed.
type Listing struct {
	Cursors round.Cursors
	// send sends the request for a page, which the policy and the limits may refuse.
	Send func(server string, req *mcp.Request, serve Serve) (mcp.Result, error)
	// decide returns the part of a task that the policy allows.
	Decide func(t *Task, raw json.RawMessage) json.RawMessage
	// failed logs that the tasks of a server are missing.
	Failed func(server string, err error)
}

// List serves tasks/list: the tasks of each server, server by server.
func (c *Caller) List(req *mcp.Request, l *Listing) (mcp.Result, error) {
	at, err := l.Cursors.Open(req)
	if err != nil {
		return nil, err
	}
	tasks := []byte{}
	if at.Server == "" {
		for _, k := range c.keptResults("") {
			if _, err := c.Open(k.handle); err != nil { // the caller may not use the server
				continue
			}
			tasks = append(append(append(tasks, `,{`...), k.members(k.status())[1:]...), '}')
		}
	}
	var names []string // of the servers that list tasks
	for _, sender := range c.Senders() {
		if s := sender.Info(); s.Lists() {
			names = append(names, s.Name)
		}
	}
	next := ""
	for n, name := range names {
		if at.Server != "" && at.Server != name {
			continue
		}
		sender := c.Sender(name)
		raw, used, err := l.page(req, sender, name, at)
		if err != nil {
			if at.Cursor != "" { // the client already holds a part of its list
				return nil, err
			}
			at = round.Cursor{}
			l.Failed(name, err)
			continue
		}
		tasks = append(tasks, c.listed(sender, name, used.Class, raw, l.Decide)...)
		next = l.Cursors.After(names[n:], at, raw)
		break
	}
	b := append([]byte(`{"resultType":"complete","tasks":[`), strings.TrimPrefix(string(tasks), ",")...)
	if b = append(b, ']'); next != "" {
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), next)
	}
	return mcp.RawResult(append(b, '}')), nil
}

func (l *Listing) page(
	req *mcp.Request, s Sender, server string, at round.Cursor,
) (raw mcp.RawResult, used Place, err error) {
	inner := *req
	inner.Params = []byte("{}")
	if at.Cursor != "" {
		inner.Params = append(jsonscan.AppendQuote([]byte(`{"cursor":`), at.Cursor), '}')
	}
	res, err := l.Send(server, &inner, func(ctx context.Context) (res mcp.Result, err error) {
		res, used, err = s.Send(ctx, &inner, Place{AnyClass: true})
		return res, err
	})
	raw, _ = res.(mcp.RawResult)
	return raw, used, err
}

// listed returns the tasks of a page, each after a comma, with the ids that the caller knows.
func (c *Caller) listed(
	s Sender, server, class string, page []byte, decide func(*Task, json.RawMessage) json.RawMessage,
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
		t, err := c.newTask(s, server, c.issuedRef(Ref{Server: server, Class: class, ID: id}))
		if id == "" || err != nil {
			continue
		}
		raw = decide(t, jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.Handle)))
		tasks = append(append(tasks, ','), raw...)
	}
	return tasks
}
