// Package tasks is the screen of the web console with the tasks of callers.
package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/status"
)

const (
	// pageSize is the number of tasks of a page.
	pageSize = 100
	// every is the interval of renderings, because no event reports the progress of a task.
	every = 2 * time.Second
	// askAfter is how old the description of a server is before the server is asked about a task that a page
	// shows. Each failure doubles the pause, up to maxPause. patience bounds the request, maxAsked limits the
	// requests in progress, and maxTried the tasks whose pauses are known.
	askAfter = 2 * time.Second
	maxPause = time.Minute
	patience = 10 * time.Second
	maxAsked = 16
	maxTried = 1000
	// maxShown bounds the text of a result in the page, in bytes.
	maxShown = 256 << 10
)

// A screen shows tasks. It is safe for concurrent use.
type screen struct {
	site *page.Site

	mu    sync.Mutex // guards the fields below
	asked int        // the requests in progress
	tried map[string]attempt
}

// An attempt is the last request to a server about a task.
type attempt struct {
	pause time.Duration // after it
	next  time.Time     // of the earliest next request
}

// New returns the screen.
func New(site *page.Site) *page.Screen {
	s := &screen{site: site, tried: map[string]attempt{}}
	return &page.Screen{Routes: []*page.Route{
		{Path: "/tasks", Role: page.RoleViewer, Title: "Tasks", Key: "j", Order: 35, View: s.view},
		{Path: "/tasks/result", Role: page.RoleOperator, Title: "Result of a task", View: s.result},
		{Path: "/tasks/cancel", Role: page.RoleOperator, Act: s.cancel},
	}}
}

// A Task is a task of GET /tasks.
type Task struct {
	status.Task
	Caller struct{ Subject, Issuer string } `json:"caller"`
	Handle string                           `json:"handle"` // only of a task of the person
	Result json.RawMessage                  `json:"result"`
	Role   page.Role
}

// Element returns the id of the row.
func (t *Task) Element() string { return "task-" + page.ElementID(t.ID) }

// Operates reports whether the person may read the texts of the task and end the task.
func (t *Task) Operates() bool { return t.Role.Grants(page.RoleOperator) }

// Kind returns the class of the status, which selects its colour and symbol.
func (t *Task) Kind() string {
	switch t.Status {
	case "working":
		return "busy"
	case inputRequired:
		return "warn"
	case "completed":
		return "ok"
	case "failed":
		return "bad"
	}
	return "idle"
}

// Words returns the status in words.
func (t *Task) Words() string { return strings.ReplaceAll(t.Status, "_", " ") }

// HasEnded reports whether the task cannot change any more.
func (t *Task) HasEnded() bool {
	return t.HasResult || t.Status == "cancelled" || t.Status == "unknown"
}

// Left returns the time until the server may forget the task.
func (t *Task) Left() string {
	if t.Expires.IsZero() {
		return "no limit"
	}
	left := max(time.Until(t.Expires), 0)
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, " days"}, {time.Hour, " h"}, {time.Minute, " min"}} {
		if left >= 2*unit.size {
			return strconv.Itoa(int(left/unit.size)) + unit.name
		}
	}
	return strconv.Itoa(int(left/time.Second)) + " s"
}

// Frames returns the URL of the exchanges of the task, whose messages contain its id.
func (t *Task) Frames() (string, error) {
	return page.Link("/traffic", "q", "server:"+strconv.Quote(t.Server)+" text:"+strconv.Quote(t.TaskID))
}

// inputRequired is the status of a task that waits for an answer of its caller.
const inputRequired = "input_required"

// news returns the question of the task, or its message, as the person may read it.
func (t *Task) news() string {
	switch {
	case t.Operates():
		return cmp.Or(t.Question, t.Message, "–")
	case t.Status == inputRequired:
		return "waits for an answer of its caller"
	}
	return "–"
}

// A tasksPage is the data of tasksBody.
type tasksPage struct {
	Tasks      []*Task `json:"tasks"`
	NextCursor int     `json:"nextCursor"`
	Refresh    string
	Next       string // the URL of older tasks, or ""
}

func (s *screen) view(r *page.Request) (*page.View, error) {
	after := cmp.Or(r.URL.Query().Get("after"), "0")
	link := func(after string) string { return "/tasks?" + url.Values{"after": {after}}.Encode() }
	p := &tasksPage{Refresh: link(after)}
	query := url.Values{"cursor": {after}, "limit": {strconv.Itoa(pageSize)}}
	if err := r.Get("/tasks?"+query.Encode(), p); err != nil {
		return nil, err
	}
	if p.NextCursor > 0 {
		p.Next = link(strconv.Itoa(p.NextCursor))
	}
	var due []string
	for _, t := range p.Tasks {
		if t.Role = r.Role; !r.Opens(t.Server) {
			t.Role = page.RoleViewer
		}
		if !t.HasEnded() && time.Since(t.Checked) >= askAfter {
			due = append(due, t.ID)
		}
	}
	s.ask(due)
	return &page.View{Body: tasksBody(p), Every: every,
		Fragments: []page.Fragment{{ID: "tasks", Body: listPart(p)}}}, nil
}

// ask asks the servers of tasks about them in the background, for the next rendering of the pages. The tasks that
// have waited longest come first, so that tasks whose servers fail do not delay the others.
func (s *screen) ask(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.tried)+len(ids) > maxTried {
		maps.DeleteFunc(s.tried, func(_ string, a attempt) bool { return !now.Before(a.next) })
	}
	slices.SortStableFunc(ids, func(a, b string) int { return s.tried[a].next.Compare(s.tried[b].next) })
	for _, id := range ids {
		last := s.tried[id]
		if s.asked >= maxAsked || now.Before(last.next) || len(s.tried) >= maxTried {
			return
		}
		s.asked++
		s.tried[id] = attempt{next: now.Add(maxPause)} // the request ends earlier
		s.site.Background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if s.site.Call(ctx, nil, http.MethodGet, "/tasks/"+url.PathEscape(id), nil, nil) == nil {
				last.pause = 0
				defer s.site.Changed()
			} // else the page shows the age of the description
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked--
			last.pause = min(max(2*last.pause, askAfter), maxPause)
			s.tried[id] = attempt{last.pause, time.Now().Add(last.pause)}
		})
	}
}

// A resultPage is the data of resultBody.
type resultPage struct {
	*Task
	Parts   []part
	JSON    string
	Cut     bool // JSON contains only the beginning
	Size    string
	Content struct { // the parts of a result, or of a JSON-RPC error
		IsError bool
		Code    int
		Message string
		Content []struct {
			Type, Text, Name, URI, MIMEType, Data string
			Resource                              struct{ URI, MIMEType, Text string }
		}
	}
}

// A part is a content block of the result.
type part struct{ Kind, Text string }

// result shows the result of a task. Results contain the data of their callers, so they require an operator.
func (s *screen) result(r *page.Request) (*page.View, error) {
	t, err := Find(r, r.URL.Query().Get("task"))
	if err != nil {
		return nil, err
	}
	if err := r.Post("/tasks/"+url.PathEscape(t.ID)+":result", nil, t); err != nil {
		return nil, err
	}
	p := &resultPage{Task: t}
	if len(p.Result) <= maxShown {
		_ = json.Unmarshal(p.Result, &p.Content) // after an error, the page shows only the JSON
	}
	for _, c := range p.Content.Content {
		text := cmp.Or(c.Text, c.Resource.Text, strings.TrimSpace(c.Name+" "+c.URI+c.Resource.URI))
		if c.Data != "" {
			text = c.MIMEType + ", " + term.FormatBytes(len(c.Data)*3/4) // Base64
		}
		p.Parts = append(p.Parts, part{c.Type, text})
	}
	p.JSON, p.Size = page.Indent(p.Result), term.FormatBytes(len(p.Result))
	if p.Cut = len(p.JSON) > maxShown; p.Cut {
		p.JSON = strings.ToValidUTF8(p.JSON[:maxShown], "")
	}
	return &page.View{Title: "Result of " + p.Tool, Body: resultBody(p)}, nil
}

// Find returns a task of a server that the person may use. It sends no request to the server.
func Find(r *page.Request, id string) (*Task, error) {
	p := tasksPage{NextCursor: -1}
	for after := 0; p.NextCursor != 0; after = p.NextCursor {
		p = tasksPage{}
		if err := r.Get(fmt.Sprintf("/tasks?cursor=%d&limit=%d", after, pageSize), &p); err != nil {
			return nil, err
		}
		for _, t := range p.Tasks {
			if t.ID == id && !r.Opens(t.Server) {
				return nil, servers.Unknown(t.Server)
			} else if t.ID == id {
				return t, nil
			}
		}
	}
	return nil, page.Problem(http.StatusNotFound, "unknown_task", "no such task: the gateway was restarted, or the "+
		"task expired")
}

// cancel asks the server of a task to end it.
func (s *screen) cancel(r *page.Request) (*page.Outcome, error) {
	t, err := Find(r, r.PostFormValue("task"))
	if err != nil {
		return nil, err
	}
	err = r.Post("/tasks/"+url.PathEscape(t.ID)+":cancel", nil, t)
	if p, ok := errors.AsType[*gateway.Problem](err); ok && p.Code == "task_ended" {
		return &page.Outcome{Location: "/tasks", Message: "The task had ended already."}, nil
	}
	if err != nil {
		return nil, err
	}
	s.site.Changed()
	return &page.Outcome{Location: "/tasks", Message: "Asked to end " + t.Tool + ". Status: " + t.Words()}, nil
}
