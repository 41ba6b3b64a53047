package host

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// declareTasks declares tasks in the form of the client of a request, if a server has them in any
// form.
func (v *View) declareTasks(req *mcp.Request, caps *mcp.ServerCapabilities) {
	delete(caps.Extensions, extensionTasks)
	caps.Tasks = nil
	some, lists := false, false
	for _, p := range v.pools() {
		some = some || p.taskForm() != noTasks
		lists = lists || v.listsTasks(p)
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

// listsTasks reports whether a server lists the tasks of its caller. One that several callers share
// would list those of all.
func (v *View) listsTasks(p *pool) bool {
	return p.taskForm() == sessionTasks && p.declares("tasks", "list") && p.up.share() != config.ShareShared
}

// listTasks serves tasks/list: the tasks of one server after the other.
func (v *View) listTasks(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	at, err := v.openListCursor(req)
	if err != nil {
		return nil, err
	}
	tasks := []byte{}
	if at.Server == "" {
		for _, k := range v.host.kept.of(v.caller.principal(), "") {
			if _, err := v.openTask(k.handle); err != nil { // the caller may not use the server
				continue
			}
			tasks = append(append(append(tasks, `,{`...), k.members(k.status())[1:]...), '}')
		}
	}
	next, pools := "", v.pools()
	for n, p := range pools {
		if at.Server != "" && at.Server != p.up.name || !v.listsTasks(p) {
			continue
		}
		raw, err := v.taskPage(ctx, req, p, at)
		if err != nil {
			if at.Cursor != "" { // the client has a part of its list
				return nil, err
			}
			at = listCursor{}
			v.host.opts.Logger.DebugContext(ctx, "host: tasks not listed", "server", p.up.name, "error", err)
			continue
		}
		tasks = append(tasks, v.listed(p, p.class(req), raw)...)
		next = v.cursorAfter(req, pools[n:], at, raw)
		break
	}
	b := append([]byte(`{"resultType":"complete","tasks":[`), strings.TrimPrefix(string(tasks), ",")...)
	if b = append(b, ']'); next != "" {
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), next)
	}
	return mcp.RawResult(append(b, '}')), nil
}

func (v *View) taskPage(ctx context.Context, req *mcp.Request, p *pool, at listCursor) (mcp.RawResult, error) {
	inner := *req
	inner.Params = []byte("{}")
	if at.Cursor != "" {
		inner.Params = append(jsonscan.AppendQuote([]byte(`{"cursor":`), at.Cursor), '}')
	}
	res, err := v.send(ctx, &inner, &route{kind: ActionOther, pool: p,
		serve: func(ctx context.Context) (mcp.Result, error) {
			_, res, _, err := p.forward(ctx, &inner, p.class(req), previousRound{}, v.forwardOptions(req, p))
			return res, err
		}})
	raw, _ := res.(mcp.RawResult)
	return raw, err
}

// listed returns the tasks of a page, each after a comma, with the ids that the caller knows.
func (v *View) listed(p *pool, class string, page []byte) (tasks []byte) {
	if !jsonscan.IsObject(page) {
		return nil
	}
	list, _ := jsonscan.Get(page, "tasks")
	if jsonscan.Kind(list) != '[' {
		return nil
	}
	for raw := range jsonscan.Elements(list) {
		id := jsonscan.GetString(raw, "taskId")
		t, err := v.newTask(p, v.host.issued.find(v.principal, taskID{Server: p.up.name, Class: class, ID: id}))
		if id == "" || err != nil {
			continue
		}
		raw = v.decideTask(t, jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.handle)))
		tasks = append(append(tasks, ','), raw...)
	}
	return tasks
}

// A listCursor is a position in the lists of several servers, which are read one after the other.
type listCursor struct {
	Server string `json:"s"`
	Cursor string `json:"c,omitzero"` // of the server; empty for its first page
	Page   int    `json:"p,omitzero"` // how many pages of the server come before
}

// maxPagesInTurn bounds the pages of one server in a list of several: one that never sends the last page
// must not hide the items of the servers after it from clients, which read 1,000 pages or so.
const maxPagesInTurn = 200

// cursorAfter returns the cursor after a page of the first of the servers; "" after the last page.
func (v *View) cursorAfter(req *mcp.Request, pools []*pool, at listCursor, page []byte) string {
	cursor := jsonscan.GetString(page, "nextCursor")
	if cursor == "" || at.Page+1 >= maxPagesInTurn {
		return v.nextListCursor(req, pools[1:])
	}
	return v.sealListCursor(req, listCursor{pools[0].up.name, cursor, at.Page + 1})
}

// nextListCursor returns the cursor of the first list of the servers; "" if there is none.
func (v *View) nextListCursor(req *mcp.Request, pools []*pool) string {
	for _, p := range pools {
		if req.Method == methodTaskList && v.listsTasks(p) || req.Method == methodSkillList && p.hasSkills() {
			return v.sealListCursor(req, listCursor{Server: p.up.name})
		}
	}
	return ""
}

func (v *View) sealListCursor(req *mcp.Request, c listCursor) string {
	plain, err := json.Marshal(c)
	if err != nil {
		return "" // strings always encode
	}
	return v.host.states.ring.SealText(plain, v.listBound(req)...)
}

func (v *View) listBound(req *mcp.Request) []string {
	return []string{"cursor", v.caller.principal(), v.caller.Profile, v.caller.Server, req.Method}
}

// openListCursor returns the position that the cursor of a request has sealed, the zero value for
// none.
func (v *View) openListCursor(req *mcp.Request) (c listCursor, err error) {
	raw, ok := req.Param("cursor")
	if !ok {
		return c, nil
	}
	text, err := jsonscan.Unquote(raw)
	if err != nil {
		return c, errInvalidCursor
	}
	plain, _, err := v.host.states.ring.OpenText(text, v.listBound(req)...)
	if err != nil || json.Unmarshal(plain, &c) != nil || c.Server == "" {
		return c, errInvalidCursor
	}
	return c, nil
}
