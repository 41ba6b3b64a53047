// Package explore is the screen of the web console that lists tools, resources and prompts of
// servers, and runs them.
package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/doctorpage"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/traffic"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxDrafts bounds the forms that browsers without scripts are filling in.
	maxDrafts = 200
	// maxDraftBytes bounds the posted texts of these forms, of which each may contain 4 MiB.
	maxDraftBytes = 16 << 20
	// exploreEvery is how often the page is rendered while a server starts.
	exploreEvery = time.Second
	// maxListed bounds the items of a page: the filter finds the others.
	maxListed = 2000
)

// Options configures the screen.
type Options struct {
	// Connect returns a connection to a server as the principal p, which must use the names of the
	// server. Default: an error.
	Connect func(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error)
	// Dial returns a new connection to a server, for runs in a revision that a person selects.
	// Default: a person cannot select a revision.
	Dial func(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error)
	// Target returns how other programs reach a server, for the commands that pages offer to copy.
	// It must contain no secrets. Default: a server of the configuration, by its name.
	Target func(server string) *Target
	// App is called when a call of a tool with a view ends, so that its app can be shown. Default:
	// apps are not shown.
	App func(c *apps.Call)
	// Desk takes the questions of servers in runs. Default: a desk of the screen.
	Desk *question.Desk
	// Viewer lets operators see the lists of other persons. Default: they see only their own.
	Viewer *Viewer
	// Doctor examines the servers that fail. Default: nil, which examines nothing.
	Doctor *doctorpage.Doctor
	// Capture contains the requests that can be sent again. Default: recorded requests cannot be sent again.
	Capture *capture.Ring
	// Version is the version of the program.
	Version string
	// Checks is the path of the file for saved calls. Default: calls cannot be saved.
	Checks string
	// Mask replaces secrets in a text; required with Checks.
	Mask func(text string) string
}

// revisions returns the revisions that a person may select, the newest first.
func (o *Options) revisions() []string {
	if o.Dial == nil {
		return nil
	}
	return driver.Revisions()
}

// An explorer contains the functions of the screen. It is safe for concurrent use.
type explorer struct {
	site       *page.Site
	opts       Options
	catalogues *catalogues
	runs       *runs

	saving sync.Mutex // serializes changes of the file for saved calls

	mu     sync.Mutex // guards the fields below
	last   int        // ID of a draft
	drafts []*draft   // the oldest first

	subscriptions map[subscriptionKey]*subscription
}

// New returns the screen.
func New(site *page.Site, o *Options) *page.Screen {
	e := &explorer{site: site, opts: *o, subscriptions: map[subscriptionKey]*subscription{}}
	if e.opts.Connect == nil {
		e.opts.Connect = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return nil, errors.New("this console does not connect to servers")
		}
	}
	e.opts.Version, e.opts.Desk = cmp.Or(o.Version, "devel"), cmp.Or(o.Desk, &question.Desk{})
	e.runs = &runs{site: site, opts: &e.opts, all: map[runsKey][]*run{}}
	e.catalogues = &catalogues{site: site, connect: e.opts.Connect, all: map[runsKey]*catalogue{},
		stale: map[runsKey]bool{}}
	s := &page.Screen{Heard: e.heard, Routes: []*page.Route{
		{Path: "/explore", Role: page.RoleViewer, AnyServer: true, Title: "Explore", Key: "e", Order: 20, View: e.view},
		{Path: "/explore/run", Role: page.RoleOperator, Act: e.actRun},
		{Path: "/explore/again", Role: page.RoleOperator, Act: e.actAgain},
		{Path: "/explore/task", Role: page.RoleOperator, Act: e.actTask},
		{Path: "/explore/cancel", Role: page.RoleOperator, Act: e.actCancel},
		{Path: "/explore/watch", Role: page.RoleOperator, Act: e.actSubscribe},
		{Path: "/explore/data", Role: page.RoleViewer, Serve: e.data},
	}}
	if o.Capture != nil {
		s.Routes = append(s.Routes, &page.Route{Path: "/explore/replay", Role: page.RoleOperator, Act: e.actReplay})
	}
	if o.Checks != "" {
		s.Routes = append(s.Routes,
			&page.Route{Path: savePath, Role: page.RoleOperator, Title: "Save a call", View: e.viewSave},
			&page.Route{Path: savePath, Role: page.RoleOperator, Act: e.actSave})
	}
	return s
}

// savePath is the path of the page that saves a run.
const savePath = "/explore/save"

// heard marks the lists of a server as stale when an event concerns the server.
func (e *explorer) heard(event page.Event) {
	if slices.Contains([]string{"", "server", "catalogue", "drift", "config"}, event.Type) {
		e.catalogues.forget(event.Server)
	}
	if event.State == string(status.Ready) {
		e.catalogues.retry(event.Server)
	}
	if event.Type == "server" {
		e.site.Background(func(ctx context.Context) { e.disconnected(ctx, event.Server) })
	}
}

// An explorePage is the data of the page and its parts.
type explorePage struct {
	At        explorePlace
	Servers   []string
	Persons   []string // whose lists the person may view
	Server    *servers.Row
	Stderr    []string // the last lines, while the server does not respond
	Catalogue *catalogue
	Kinds     []itemKind
	Items     []*item // of the list that match the filter
	More      int     // matching items that are not listed
	Item      *item   // that is selected; may be nil
	Editor    *editor
	Doctor    *doctorpage.Examination // of a server that fails; nil for another server
	Run       *runPage                // nil without a run
	History   []*runRow
	Wire      *wire // nil unless the person may see the messages of the server
	Role      page.Role

	Subscriptions map[string]subscription // to resources of the server, by URI
}

// Negotiated returns the revision of the connection to the server: the revision that the host speaks
// with the server, which may differ from the revision between the console and the host.
func (p *explorePage) Negotiated() string {
	if p.Server != nil && p.Server.Revision != "" {
		return p.Server.Revision
	}
	return p.Catalogue.Revision
}

// negotiated returns the revision of the connection to a server; see [explorePage.Negotiated].
func (e *explorer) negotiated(r *page.Request, server string) string {
	p := &explorePage{Catalogue: e.catalogues.of(server, r.Principal)}
	list, _ := servers.List(r) // without it, the catalogue states a revision
	if at := slices.IndexFunc(list, func(s servers.Row) bool { return s.Name == server }); at >= 0 {
		p.Server = &list[at]
	}
	return p.Negotiated()
}

// ReadURL returns the page of a resource that a result names.
func (p *explorePage) ReadURL(uri string) string {
	return explorePlace{Server: p.At.Server, Kind: kindResources, Name: uri}.URL()
}

// A runPage is a run as the page shows it.
type runPage struct {
	*run
	State     runState
	Questions []*question.Question // with the answered ones
	Copy      []copied
	Role      page.Role
	Checks    string // the file for saved calls, or ""

	Servers   []string // to which the request may be sent again
	Revisions []string // in which it may be sent again; empty if only the host connects
	Previous  *run     // the run before with a result of the same item, or nil
	With      *run     // the run that the result is compared with, or nil
}

// Spoken returns the revision in which the server received the request. A run without a selected revision passes
// through the host, which may speak different revisions with the server and with the console. row may be nil.
func (r *runPage) Spoken(row *servers.Row) string {
	if r.Pinned == "" && r.State.Revision != "" && row != nil && row.Revision != "" {
		return row.Revision
	}
	return r.State.Revision
}

// CanSave reports whether the run can be saved as a call.
func (r *runPage) CanSave() bool {
	return r.Checks != "" && r.Resumed == "" && r.State.Phase.Ended() && (r.State.Result != nil || r.State.Code != 0) &&
		r.Role == page.RoleOperator
}

// failed reports whether the tool failed.
func (r *runPage) failed() bool { return r.State.Result != nil && r.State.Result.IsError }

// dataURL returns the URL of the data of a part of the result; -1 is the whole result.
func (r *runPage) dataURL(part int) string {
	return fmt.Sprintf("/explore/data?part=%d&run=%d", part, r.ID)
}

// LacksApp reports whether the console cannot show the view of the tool.
func (r *runPage) LacksApp() bool { return r.Item.view && r.opts.App == nil }

// Percent returns the progress in percent, or -1 if the server does not state the total.
func (r *runPage) Percent() int {
	p := r.State.Progress
	if p == nil || p.Total == nil || *p.Total <= 0 {
		return -1
	}
	return int(min(max(p.Progress / *p.Total * 100, 0), 100))
}

// Rev rises with the ID of the run and with each change of its state.
func (r *runPage) Rev() int { return r.ID<<32 + r.State.Version }

// Took returns the duration of a run.
func (r *runPage) Took() string { return took(r.Started, r.State.Ended) }

func took(began, ended time.Time) string {
	if ended.IsZero() {
		return ""
	}
	d := ended.Sub(began)
	if d < time.Second {
		return fmt.Sprintf("%.3g ms", float64(d.Microseconds())/1000)
	}
	return d.Round(10 * time.Millisecond).String()
}

// A runRow is a run in the history.
type runRow struct {
	At      explorePlace
	Started time.Time
	Took    string
	Phase   runPhase
	IsError bool
	Current bool
}

func (e *explorer) view(r *page.Request) (*page.View, error) {
	p, err := e.page(r, placeOf(r.URL.Query()))
	if err != nil {
		return nil, err
	}
	v := &page.View{Body: p.body(), Fragments: p.fragments(), Title: "Explore"}
	if p.Item != nil {
		v.Title = p.Item.Name + " · Explore"
	}
	if p.Catalogue != nil && !p.Catalogue.Loaded {
		v.Every = exploreEvery
	}
	return v, nil
}

// fragments returns the parts of the page that change.
func (p *explorePage) fragments() []page.Fragment {
	loaded := ""
	if p.Catalogue != nil && p.Catalogue.Loaded {
		loaded = p.Catalogue.Began.String()
	}
	definition := ""
	if p.Item != nil {
		definition = p.Item.Definition
	}
	all := []page.Fragment{
		{ID: "explore-state", Body: p.statePart()},
		{ID: "items", Body: p.itemsPart(), Version: fmt.Sprint(loaded, p.At, p.Subscriptions)},
		{ID: "item", Body: p.itemPart(), Version: fmt.Sprint("item", p.At, definition)},
		{ID: "subscription", Body: p.subscriptionPart()},
		{ID: "run", Body: p.runPart(), Version: p.Run.version(false)},
		{ID: "result", Body: p.resultPart(), Version: p.Run.version(true)},
		{ID: "history", Body: p.historyPart()}, p.Doctor.Fragment(),
		{ID: "wire", Body: p.wirePart(), Version: p.Wire.version()},
	}
	if p.Run == nil {
		return all
	}
	return append(all, question.Fragments(p.Run.Questions)...)
}

// version identifies the state of a run, or the state of its result.
func (r *runPage) version(result bool) string {
	switch {
	case r == nil:
		return "none"
	case result:
		return fmt.Sprint(r.ID, r.State.Phase.Ended(), r.State.Saved, r.With != nil, r.Previous != nil)
	}
	return fmt.Sprint(r.ID, " ", r.State.Version)
}

// page returns the data of a page.
func (e *explorer) page(r *page.Request, at explorePlace) (*explorePage, error) {
	list, err := servers.List(r)
	if err != nil {
		return nil, err
	}
	p := &explorePage{At: at, Kinds: itemKinds, Role: r.Role}
	if at.Server == "" && len(list) > 0 {
		p.At.Server = list[0].Name
	}
	for i := range list {
		p.Servers = append(p.Servers, list[i].Name)
		if list[i].Name == p.At.Server {
			p.Server = &list[i]
		}
	}
	if e.opts.Viewer != nil && r.Role.Grants(page.RoleOperator) {
		p.Persons = persons(r)
	}
	if p.Server != nil && at.As != "" {
		return p, e.viewAs(r, p)
	}
	if p.Server != nil {
		p.Catalogue = e.catalogues.of(p.At.Server, r.Principal)
	}
	p.Doctor = e.opts.Doctor.Examination(r, p.Server)
	if p.Server == nil && at.Server != "" {
		return nil, servers.Unknown(at.Server)
	}
	if p.Server == nil {
		return p, nil
	}
	e.addSubscriptions(r, p)
	readsOutput := r.ReadsOutput(p.At.Server)
	if readsOutput && (!p.Catalogue.Loaded || p.Catalogue.Err != "") { // the server does not respond
		p.Stderr = stderrOf(r, p.At.Server, stderrBrief)
	}
	if readsOutput && e.opts.Capture != nil {
		p.Wire = &wire{traffic.Latest(e.opts.Capture, p.At.Server, maxWired), stderrOf(r, p.At.Server, stderrLines)}
	}
	e.selectItem(p)
	e.addRuns(r, p)
	if p.Item != nil {
		p.Editor = e.editorOf(r, p)
		p.Editor.Negotiated = p.Negotiated()
	}
	return p, nil
}

// stderrOf returns the last n lines of a server's standard error.
func stderrOf(r *page.Request, server string, n int) (lines []string) {
	var list struct {
		Lines []struct{ Text string }
	}
	if r.Get("/servers/"+url.PathEscape(server)+fmt.Sprintf("/stderr?limit=%d", n), &list) == nil {
		for _, l := range list.Lines {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

// selectItem sets the items that match the filter, and the item that the URL names, or the first.
func (e *explorer) selectItem(p *explorePage) {
	filter := strings.ToLower(p.At.Filter)
	for _, i := range p.Catalogue.Items[p.At.Kind] {
		if filter != "" && !strings.Contains(strings.ToLower(i.Name+"\n"+i.Title+"\n"+i.Description), filter) {
			continue
		}
		if len(p.Items) == maxListed {
			p.More++
			continue
		}
		p.Items = append(p.Items, i)
	}
	p.Item = p.Catalogue.find(p.At.Kind, p.At.Name)
	if p.Item == nil && p.Catalogue.Loaded {
		p.Item = unlisted(p.At)
	}
	if p.At.Name == "" && len(p.Items) > 0 {
		p.Item = p.Items[0]
		p.At.Name = p.Item.Name
	}
}

// unlisted returns the item of a page that the server need not list, or nil: a resource or a
// method.
func unlisted(at explorePlace) *item {
	switch {
	case at.Name == "":
	case at.Kind == kindResources:
		return resourceItem(&mcp.Resource{URI: at.Name})
	case at.Kind == kindMethods:
		return methodItem(at.Name)
	}
	return nil
}

// addRuns sets the history, and the run of the URL or the last run of the item.
func (e *explorer) addRuns(r *page.Request, p *explorePage) {
	var shown *run
	for _, one := range slices.Backward(e.runs.of(p.At.Server, r.Principal)) {
		state := one.snapshot()
		at := explorePlace{Server: one.Server, Kind: one.Item.Kind, Name: one.Item.Name, Run: one.ID}
		isItem := one.Item.Kind == p.At.Kind && one.Item.Name == p.At.Name
		if shown == nil && (one.ID == p.At.Run || p.At.Run == 0 && isItem) {
			shown = one
		}
		p.History = append(p.History, &runRow{at, one.Started, took(one.Started, state.Ended), state.Phase,
			state.Result != nil && state.Result.IsError, shown == one})
	}
	if shown == nil {
		return
	}
	p.Run = e.runPage(r, shown)
	e.compare(r, p.Run, p.At.With)
	p.Run.Servers = p.Servers
	if p.Item == nil && p.At.Run != 0 { // the server lists the item no longer
		p.Item = shown.Item
	}
}

func (e *explorer) runPage(r *page.Request, shown *run) *runPage {
	state := shown.snapshot()
	return &runPage{run: shown, State: state, Questions: e.opts.Desk.Of(shown.ID, 0),
		Copy: copyAs(e.target(shown.Server), shown, state.Revision), Role: r.Role,
		Checks: e.opts.Checks, Revisions: e.opts.revisions()}
}

// target returns how other programs reach a server.
func (e *explorer) target(server string) *Target {
	if e.opts.Target != nil {
		return e.opts.Target(server)
	}
	return &Target{Name: server}
}

// runOf returns the run that a form names.
func (e *explorer) runOf(r *page.Request) (*run, error) {
	id, _ := strconv.Atoi(r.FormValue("run"))
	if found := e.runs.find(id, r.Principal); found != nil {
		return found, nil
	}
	return nil, page.Problem(http.StatusNotFound, "unknown_run", "run %d is not among the last %d runs", id, maxRuns)
}

// begin starts a run, and shows its page.
func (e *explorer) begin(r *page.Request, next *run) (*page.Outcome, error) {
	if err := e.runs.start(next, r.Principal); err != nil {
		return nil, err
	}
	e.site.Changed()
	return &page.Outcome{Location: next.Place()}, nil
}

func (e *explorer) actCancel(r *page.Request) (*page.Outcome, error) {
	found, err := e.runOf(r)
	if err != nil {
		return nil, err
	}
	found.cancel(errRunCancelled)
	return &page.Outcome{Location: found.place().URL(), Fragments: []page.Fragment{}, Message: "Cancelling."}, nil
}

// data serves a part of a result: an image or audio for the page, and anything else as a download.
func (e *explorer) data(w http.ResponseWriter, r *page.Request) error {
	found, err := e.runOf(r)
	if err != nil {
		return err
	}
	res := found.snapshot().Result
	part, err := strconv.Atoi(r.URL.Query().Get("part"))
	name, kind, data := "result.json", "application/json", found.result()
	switch {
	case res == nil || err != nil || part < -1 || part >= len(res.Blocks):
		return page.Problem(http.StatusNotFound, "", "the run has no such result")
	case part >= 0:
		b := res.Blocks[part]
		name, kind, data = fmt.Sprintf("part-%d", part), "text/plain; charset=utf-8", b.data
		if b.Kind == "binary" {
			kind = "application/octet-stream"
		}
		if b.Kind == "image" || b.Kind == "audio" {
			kind = cmp.Or(b.Type, "application/octet-stream")
			name = ""
		}
	}
	if name != "" {
		w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data) // an error means that the browser left
	return nil
}
