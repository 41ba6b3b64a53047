// Package tasks is the screen of the web console with the tasks of callers.
package tasks

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/status"
)

const (
	// pageSize is the number of tasks of a page.
	pageSize = 100
	// every is how often the page is rendered: no event reports the progress of a task.
	every = 2 * time.Second
	// askAfter is how old the description of a server is before the server is asked about a task that a page
	// shows, and patience bounds the request. maxAsked limits the requests in progress.
	askAfter = 2 * time.Second
	patience = 10 * time.Second
	maxAsked = 16
	// maxShown bounds the text of a result in the page, in bytes.
	maxShown = 256 << 10
)

//go:embed templates
var templates embed.FS

// A screen shows tasks. It is safe for concurrent use.
type screen struct {
	site *page.Site

	mu    sync.Mutex // guards the field below
	asked map[string]bool
}

// New returns the screen.
func New(site *page.Site) *page.Screen {
	s := &screen{site: site, asked: map[string]bool{}}
	return &page.Screen{Templates: templates, Routes: []*page.Route{
		{Path: "/tasks", Role: page.RoleViewer, Title: "Tasks", Key: "j", Order: 35, View: s.view},
		{Path: "/tasks/result", Role: page.RoleOperator, Title: "Result of a task", View: s.result},
		{Path: "/tasks/cancel", Role: page.RoleOperator, Act: s.cancel},
	}}
}

// A task is a task of GET /tasks.
type task struct {
	status.Task
	Caller struct{ Subject, Issuer string } `json:"caller"`
	Result json.RawMessage                  `json:"result"`

	Role page.Role
}

// Element returns the id of the row.
func (t *task) Element() string { return "task-" + page.ElementID(t.ID) }

// Operates reports whether the person may see texts of the task, and end it.
func (t *task) Operates() bool { return t.Role.Grants(page.RoleOperator) }

// Kind returns the class of the status, which selects its colour and symbol.
func (t *task) Kind() string {
	switch t.Status {
	case "working":
		return "busy"
	case "input_required":
		return "warn"
	case "completed":
		return "ok"
	case "failed":
		return "bad"
	}
	return "idle"
}

// Words returns the status in words.
func (t *task) Words() string { return strings.ReplaceAll(t.Status, "_", " ") }

// HasEnded reports whether the task cannot change any more.
func (t *task) HasEnded() bool { return t.HasResult || t.Status == "cancelled" }

// Left returns the time until the server may forget the task.
func (t *task) Left() string {
	if t.Expires.IsZero() {
		return "no limit"
	}
	left := max(time.Until(t.Expires), 0)
	const day = 24 * time.Hour
	switch {
	case left >= 2*day:
		return strconv.Itoa(int(left/day)) + " days"
	case left >= 2*time.Hour:
		return strconv.Itoa(int(left/time.Hour)) + " h"
	case left >= 2*time.Minute:
		return strconv.Itoa(int(left/time.Minute)) + " min"
	}
	return strconv.Itoa(int(left/time.Second)) + " s"
}

// Frames returns the URL of the exchanges of the task, whose messages contain its id.
func (t *task) Frames() (string, error) {
	return page.Link("/traffic", "q", "server:"+strconv.Quote(t.Server)+" text:"+strconv.Quote(t.TaskID))
}

// A tasksPage is the data of templates/tasks.html.
type tasksPage struct {
	Tasks      []*task `json:"tasks"`
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
	for _, t := range p.Tasks {
		if t.Role = r.Role; !t.HasEnded() && time.Since(t.Checked) >= askAfter {
			s.ask(t.ID)
		}
	}
	return &page.View{Template: "tasks", Data: p, Every: every,
		Fragments: []page.Fragment{{ID: "tasks", Part: "list", Data: p}}}, nil
}

// ask asks the server of a task about it in the background, for the next rendering of the pages.
func (s *screen) ask(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[id] || len(s.asked) >= maxAsked {
		return
	}
	s.asked[id] = true
	s.site.Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_ = s.site.Call(ctx, nil, http.MethodGet, "/tasks/"+url.PathEscape(id), nil, nil) // else the page shows the age
		s.mu.Lock()
		delete(s.asked, id)
		s.mu.Unlock()
		s.site.Changed()
	})
}

// A resultPage is the data of templates/result.html.
type resultPage struct {
	*task
	Parts []part
	JSON  string
	Cut   bool // JSON is the beginning only
	Size  string
}

// A part is a part of the result in the form of its kind.
type part struct{ Kind, Text string }

// result shows the result of a task. Results contain the data of their callers, so they require an operator.
func (s *screen) result(r *page.Request) (*page.View, error) {
	p := &resultPage{task: &task{Role: r.Role}}
	if err := r.Get("/tasks/"+url.PathEscape(r.URL.Query().Get("task")), p.task); err != nil {
		return nil, err
	}
	var content struct {
		Content []struct {
			Type, Text, Name, URI, MIMEType string
			Data                            []byte
			Resource                        struct{ URI, MIMEType, Text string }
		}
	}
	if len(p.Result) <= maxShown {
		_ = json.Unmarshal(p.Result, &content) // else the page shows the JSON only
	}
	for _, c := range content.Content {
		shown := part{c.Type, cmp.Or(c.Text, c.Resource.Text, strings.TrimSpace(c.Name+" "+c.URI+c.Resource.URI))}
		if len(c.Data) > 0 {
			shown.Text = c.MIMEType + ", " + term.FormatBytes(len(c.Data))
		}
		p.Parts = append(p.Parts, shown)
	}
	p.JSON, p.Size = page.Indent(p.Result), term.FormatBytes(len(p.Result))
	if p.Cut = len(p.JSON) > maxShown; p.Cut {
		p.JSON = strings.ToValidUTF8(p.JSON[:maxShown], "")
	}
	return &page.View{Title: "Result of " + p.Tool, Template: "result", Data: p}, nil
}

// cancel asks the server of a task to end it.
func (s *screen) cancel(r *page.Request) (*page.Outcome, error) {
	var t task
	err := r.Post("/tasks/"+url.PathEscape(r.PostFormValue("task"))+":cancel", nil, &t)
	if p, ok := errors.AsType[*gateway.Problem](err); ok && p.Code == "task_ended" {
		return &page.Outcome{Location: "/tasks", Message: "The task had ended already."}, nil
	}
	if err != nil {
		return nil, err
	}
	s.site.Changed()
	message := "The server was asked to end " + t.Tool + ": it is " + t.Words() + "."
	return &page.Outcome{Location: "/tasks", Message: message}, nil
}
