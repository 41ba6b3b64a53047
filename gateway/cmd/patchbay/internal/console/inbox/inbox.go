// Package inbox is the screen of the web console on which a person decides: requests that wait for
// approval, and questions of servers.
package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxShown bounds the approvals of a page: a person decides about the oldest first.
	maxShown = 50
	// leftEvery is how often the time left is rendered.
	leftEvery = time.Second
)

// An inbox is the screen. It is safe for concurrent use.
type inbox struct {
	site *page.Site
	desk *question.Desk

	mu      sync.Mutex // guards the fields below
	seen    map[string]*Approval
	pins    map[string]*question.Pin // by ID of the request
	decided []decision               // the newest first
	asked   []elsewhere              // the oldest first
}

// New returns the screen. The desk contains the questions that persons of the console may answer.
func New(site *page.Site, desk *question.Desk) *page.Screen {
	i := &inbox{site: site, desk: desk, seen: map[string]*Approval{}, pins: map[string]*question.Pin{}}
	desk.Notify(site.Changed)
	return &page.Screen{Heard: i.heard, Routes: []*page.Route{
		{Path: "/inbox", Role: page.RoleViewer, Title: "Inbox", Key: "i", Order: 15, View: i.view, Badge: i.badge},
		{Path: "/inbox/decide", Role: page.RoleOperator, Act: i.decide},
		{Path: "/inbox/answer", Role: page.RoleOperator, Act: i.answer},
		{Path: "/inbox/revoke", Role: page.RoleOperator, Act: i.revoke},
	}}
}

// An inboxPage is the data of the page.
type inboxPage struct {
	Approvals []*Approval
	More      int // approvals that are not shown
	Questions []*question.Question
	Elsewhere []elsewhere
	Decided   []decision
	Grants    []Grant
	Role      page.Role
}

// IsEmpty reports whether no item waits for the person.
func (p *inboxPage) IsEmpty() bool { return len(p.Approvals)+len(p.Questions) == 0 }

// pending returns the requests that wait for approval, the oldest first.
func (i *inbox) pending(ctx context.Context, p *mcp.Principal) (all []*Approval, err error) {
	var list struct {
		Pending []*Approval `json:"pending"`
	}
	if err := i.site.Call(ctx, p, http.MethodGet, "/pending?limit=1000", nil, &list); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range list.Pending {
		i.seen[a.ID] = a
	}
	return list.Pending, nil
}

// questions returns the open questions for a person, without their content for a viewer.
func (i *inbox) questions(r *page.Request) []*question.Question {
	all := i.desk.Open(question.PersonOf(r.Principal))
	if !r.Role.Grants(page.RoleOperator) {
		for n, q := range all {
			all[n] = q.Hide()
		}
	}
	return all
}

// badge counts the items, and names the newest.
func (i *inbox) badge(r *page.Request) (page.Badge, error) {
	all, err := i.pending(r.Context(), r.Principal)
	if err != nil {
		return page.Badge{}, err
	}
	questions := i.questions(r)
	b := page.Badge{Count: len(all) + len(questions)}
	var newest time.Time
	if n := len(all); n > 0 {
		newest, b.News, b.URL = all[n-1].Created, all[n-1].Summary(), "/inbox#"+all[n-1].Element()
	}
	if n := len(questions); n > 0 && questions[n-1].Asked.After(newest) {
		q := questions[n-1]
		b.News, b.URL = q.Summary(), cmp.Or(q.Link, "/inbox")+"#"+q.Element()
	}
	return b, nil
}

func (i *inbox) view(r *page.Request) (*page.View, error) {
	all, err := i.pending(r.Context(), r.Principal)
	if err != nil {
		return nil, err
	}
	p := &inboxPage{Approvals: all, Role: r.Role, Questions: i.questions(r)}
	if len(all) > maxShown {
		p.Approvals, p.More = all[:maxShown], len(all)-maxShown
	}
	always := r.URL.Query().Get("always")
	for n, a := range p.Approvals {
		shown := *a
		shown.Role, shown.Confirm, shown.Pin = roleFor(r, a.Server), a.ID == always, i.pinOf(r, a)
		if !shown.Decides() {
			shown.Hide()
		}
		p.Approvals[n] = &shown
	}
	if p.Grants, err = grantsOf(r); err != nil {
		return nil, err
	}
	p.Elsewhere, p.Decided = i.others(), i.decisions()
	v := &page.View{Body: body(p), Fragments: p.fragments()}
	if len(p.Approvals) > 0 {
		v.Every = leftEvery
	}
	return v, nil
}

// fragments returns the parts of the page that change.
func (p *inboxPage) fragments() (all []page.Fragment) {
	all = append(all, page.Fragment{ID: "inbox-empty", Body: emptyPart(p.IsEmpty())},
		page.Fragment{ID: "inbox-elsewhere", Body: elsewherePart(p.Elsewhere)},
		page.Fragment{ID: "inbox-decided", Body: decidedPart(p.Decided)},
		page.Fragment{ID: "inbox-grants", Body: grantsPart(p.Grants)})
	for _, a := range p.Approvals {
		all = append(all, page.Fragment{ID: a.Element(), Body: a.card(), In: "approvals", Place: page.Append,
			Version: a.version()}, page.Fragment{ID: a.LeftElement(), Body: a.left()})
	}
	return append(all, question.Fragments(p.Questions)...)
}

// grantsOf returns the approvals for further requests.
func grantsOf(r *page.Request) ([]Grant, error) {
	var list struct{ Grants []Grant }
	err := r.Get("/grants?limit=1000", &list)
	for n := range list.Grants {
		list.Grants[n].Role = roleFor(r, list.Grants[n].Server)
	}
	return list.Grants, err
}

// decide passes on the decision about a request, which must take effect once.
func (i *inbox) decide(r *page.Request) (*page.Outcome, error) {
	id, answer := r.PostFormValue("id"), r.PostFormValue("answer")
	all, err := i.pending(r.Context(), r.Principal)
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(all, func(a *Approval) bool { return a.ID == id })
	if n >= 0 && !r.Opens(all[n].Server) {
		return nil, servers.Unknown(all[n].Server)
	}
	if n < 0 && r.Principal != nil {
		return nil, page.Problem(http.StatusConflict, "not_pending", "%s", i.tooLate(id))
	}
	err = r.Post("/pending/"+url.PathEscape(id)+":decide", map[string]string{"answer": answer}, nil)
	if p, ok := errors.AsType[*gateway.Problem](err); ok && p.Code == "not_pending" {
		return nil, page.Problem(http.StatusConflict, p.Code, "%s", i.tooLate(id))
	}
	if err != nil {
		return nil, err
	}
	name := id
	i.mu.Lock()
	if a := i.seen[id]; a != nil {
		name = a.Server + " " + a.Target
	}
	i.mu.Unlock()
	i.site.Changed()
	return &page.Outcome{Location: "/inbox", Message: wordOf(answer) + ": " + name + "."}, nil
}

// answer answers a question, or changes its form.
func (i *inbox) answer(r *page.Request) (*page.Outcome, error) {
	id, err := strconv.Atoi(r.PostFormValue("question"))
	if err != nil {
		return nil, page.Problem(http.StatusBadRequest, "invalid_question", "invalid question %.20q: must be a number",
			r.PostFormValue("question"))
	}
	q, err := i.desk.Decide(id, question.PersonOf(r.Principal), mcp.ElicitAction(r.PostFormValue("action")), r.PostForm)
	if err != nil {
		return nil, err
	}
	return &page.Outcome{Location: cmp.Or(q.Link, "/inbox"), Fragments: []page.Fragment{q.Fragment()}}, nil
}

// revoke removes a grant.
func (i *inbox) revoke(r *page.Request) (*page.Outcome, error) {
	id := r.PostFormValue("id")
	all, err := grantsOf(r)
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(all, func(g Grant) bool { return g.ID == id })
	if n >= 0 && !r.Opens(all[n].Server) {
		return nil, servers.Unknown(all[n].Server)
	}
	if n < 0 && r.Principal != nil {
		return nil, page.Problem(http.StatusNotFound, "unknown_grant", "there is no approval %q", id)
	}
	if err := r.Post("/grants/"+url.PathEscape(id)+":revoke", nil, nil); err != nil {
		return nil, err
	}
	i.site.Changed()
	return &page.Outcome{Location: "/inbox", Message: "Revoked: the next request asks again."}, nil
}

// pinOf returns the pin of the definition that a request uses, nil if it is not compared.
func (i *inbox) pinOf(r *page.Request, a *Approval) *question.Pin {
	i.mu.Lock()
	found, known := i.pins[a.ID]
	i.mu.Unlock()
	if known {
		return found
	}
	stake := a.Stake
	if stake.FindPin(r.Get) != nil {
		return nil // asked again with the next page
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pins[a.ID] = stake.Pin
	return stake.Pin
}

// An event is the data of an event of the admin API, as far as the screen uses it.
type event struct {
	Type, Server, Request, Answer, Approver string
	Call, Method, Target, Caller, Client    string
	Time                                    time.Time
	Detail                                  struct{ Action, ID, Answer string }
}

// heard hears the events of the admin API.
func (i *inbox) heard(from page.Event) {
	var e event
	if from.Type != "" && json.Unmarshal(from.Data, &e) != nil {
		return
	}
	switch from.Type {
	case "":
		i.forgetOthers() // their ends may have been lost
	case "pending":
		i.site.Background(func(ctx context.Context) { // the page of a later decision shows the request
			_, _ = i.pending(ctx, nil) // the pages show the error
		})
	case "decided":
		i.note(e.Request, e.Answer, "", e.Time)
	case "audit":
		if e.Detail.Action == "approve" || e.Detail.Action == "deny" {
			i.note(e.Detail.ID, e.Detail.Answer, e.Approver, e.Time)
		}
	case "question":
		i.addOther(&e)
	case "call":
		i.removeOther(e.Call)
	}
}
