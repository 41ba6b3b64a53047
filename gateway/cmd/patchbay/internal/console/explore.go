package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxDrafts bounds the forms that browsers without scripts are filling in.
	maxDrafts = 200
	// exploreEvery is how often the page is rendered while a server starts.
	exploreEvery = time.Second
	// maxListed bounds the items of a page: the filter finds the others.
	maxListed = 2000
)

// An explorer is the screen that lists what servers offer, and runs it. It is safe for concurrent use.
type explorer struct {
	console    *Console
	catalogues *catalogues
	runs       *runs

	mu     sync.Mutex // guards the fields below
	last   int        // ID of a draft
	drafts []*draft   // the oldest first
}

func newExplorer(c *Console) *explorer {
	return &explorer{console: c, runs: &runs{console: c, all: map[runsKey][]*run{}},
		catalogues: &catalogues{console: c, all: map[runsKey]*catalogue{}, stale: map[runsKey]bool{}}}
}

func (c *Console) exploreRoutes() []*route {
	e := c.explorer
	return []*route{
		{Path: "/explore", Role: RoleViewer, Title: "Explore", Key: "e", Order: 20, View: e.view},
		{Path: "/explore/run", Role: RoleOperator, Act: e.actRun},
		{Path: "/explore/cancel", Role: RoleOperator, Act: e.actCancel},
		{Path: "/explore/answer", Role: RoleOperator, Act: e.actAnswer},
		{Path: "/explore/data", Role: RoleViewer, serve: e.data},
	}
}

// A place is what a page of the screen shows, as its URL states it.
type explorePlace struct {
	Server, Name, Filter, Tab string
	Kind                      itemKind
	Run, Draft                int
}

func placeOf(q url.Values) explorePlace {
	number := func(name string) int { n, _ := strconv.Atoi(q.Get(name)); return n }
	p := explorePlace{Server: q.Get("server"), Name: q.Get("name"), Filter: q.Get("q"), Tab: q.Get("tab"),
		Kind: itemKind(q.Get("kind")), Run: number("run"), Draft: number("draft")}
	if tool := q.Get("tool"); tool != "" {
		p.Kind, p.Name = kindTools, tool
	}
	if !slices.Contains(itemKinds, p.Kind) {
		p.Kind = kindTools
	}
	return p
}

// URL returns the path of the page, with its query.
func (p explorePlace) URL() string {
	q := url.Values{"server": {p.Server}, "kind": {string(p.Kind)}}
	for name, value := range map[string]string{"name": p.Name, "q": p.Filter, "tab": p.Tab} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range map[string]int{"run": p.Run, "draft": p.Draft} {
		if value != 0 {
			q.Set(name, strconv.Itoa(value))
		}
	}
	return "/explore?" + q.Encode()
}

// To returns the URL of an item in the same list.
func (p explorePlace) To(name string) string {
	return explorePlace{Server: p.Server, Kind: p.Kind, Name: name, Filter: p.Filter}.URL()
}

// ToKind returns the URL of another list of the server.
func (p explorePlace) ToKind(kind itemKind) string {
	return explorePlace{Server: p.Server, Kind: kind}.URL()
}

// ToTab returns the URL of another tab of the item.
func (p explorePlace) ToTab(tab string) string {
	p.Tab = tab
	return p.URL()
}

// An explorePage is the data of templates/explore.html and its parts.
type explorePage struct {
	At        explorePlace
	Servers   []string
	Server    *serverRow
	Stderr    []string // the last lines, while the server does not respond
	Catalogue *catalogue
	Kinds     []itemKind
	Items     []*item // of the list that match the filter
	More      int     // matching items that are not listed
	Item      *item   // that is selected; may be nil
	Editor    *editor
	Run       *runPage // nil without a run
	History   []*runRow
	Role      Role
}

// ReadURL returns the page of a resource that a result names.
func (p *explorePage) ReadURL(uri string) string {
	return explorePlace{Server: p.At.Server, Kind: kindResources, Name: uri}.URL()
}

// A runPage is a run as the page shows it.
type runPage struct {
	*run
	State runState
	Copy  []copied
	Role  Role
}

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

func (e *explorer) view(r *request) (*View, error) {
	p, err := e.page(r, placeOf(r.URL.Query()))
	if err != nil {
		return nil, err
	}
	v := &View{Template: "explore", Data: p, Fragments: p.fragments(), Title: "Explore"}
	if p.Item != nil {
		v.Title = p.Item.Name + " · Explore"
	}
	if p.Catalogue != nil && !p.Catalogue.Loaded {
		v.Every = exploreEvery
	}
	return v, nil
}

// fragments returns the parts of the page that change.
func (p *explorePage) fragments() []Fragment {
	loaded := ""
	if p.Catalogue != nil && p.Catalogue.Loaded {
		loaded = p.Catalogue.Began.String()
	}
	definition := ""
	if p.Item != nil {
		definition = p.Item.Definition
	}
	all := []Fragment{
		{ID: "explore-state", Part: "explore-state", Data: p},
		{ID: "items", Part: "items", Data: p, Version: fmt.Sprint(loaded, p.At)},
		{ID: "item", Part: "item", Data: p, Version: fmt.Sprint("item", p.At, definition)},
		{ID: "run", Part: "run", Data: p, Version: p.Run.version(false)},
		{ID: "result", Part: "result", Data: p, Version: p.Run.version(true)},
		{ID: "history", Part: "history", Data: p},
	}
	if p.Run == nil {
		return all
	}
	for _, q := range p.Run.State.Questions {
		f := q.fragment()
		f.In, f.Place, f.Version = "questions", PlaceAppend, "q"+q.Answer
		all = append(all, f)
	}
	return all
}

// version identifies the state of a run, or the state of its result.
func (r *runPage) version(result bool) string {
	switch {
	case r == nil:
		return "none"
	case result:
		return fmt.Sprint(r.ID, r.State.Phase.Ended())
	}
	return fmt.Sprint(r.ID, " ", r.State.Version)
}

// page returns the data of a page.
func (e *explorer) page(r *request, at explorePlace) (*explorePage, error) {
	var list struct {
		Servers []serverRow `json:"servers"`
	}
	if err := r.get("/servers", &list); err != nil {
		return nil, err
	}
	p := &explorePage{At: at, Kinds: itemKinds, Role: r.role}
	if at.Server == "" && len(list.Servers) > 0 {
		p.At.Server = list.Servers[0].Name
	}
	for i := range list.Servers {
		p.Servers = append(p.Servers, list.Servers[i].Name)
		if list.Servers[i].Name == p.At.Server {
			p.Server = &list.Servers[i]
		}
	}
	if p.Server == nil && at.Server != "" {
		return nil, &gateway.Problem{Status: http.StatusNotFound, Code: "unknown_server",
			Detail: fmt.Sprintf("there is no server %q", at.Server)}
	}
	if p.Server == nil {
		return p, nil
	}
	p.Catalogue = e.catalogues.of(p.At.Server, r.principal)
	if !p.Catalogue.Loaded || p.Catalogue.Err != "" {
		p.Stderr = stderrOf(r, p.At.Server)
	}
	e.selectItem(p)
	e.addRuns(r, p)
	if p.Item != nil {
		p.Editor = e.editorOf(r, p)
	}
	return p, nil
}

// stderrOf returns the last lines of a server's standard error.
func stderrOf(r *request, server string) (lines []string) {
	var list struct {
		Lines []struct{ Text string }
	}
	if r.get("/servers/"+url.PathEscape(server)+"/stderr?limit=8", &list) == nil {
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
	if p.Item == nil && p.At.Kind == kindResources && p.At.Name != "" && p.Catalogue.Loaded {
		p.Item = resourceItem(&mcp.Resource{URI: p.At.Name}) // a resource need not be listed
	}
	if p.At.Name == "" && len(p.Items) > 0 {
		p.Item = p.Items[0]
		p.At.Name = p.Item.Name
	}
}

// addRuns sets the history, and the run of the URL or the last run of the item.
func (e *explorer) addRuns(r *request, p *explorePage) {
	var shown *run
	for _, one := range slices.Backward(e.runs.of(p.At.Server, r.principal)) {
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
	if p.Item == nil && p.At.Run != 0 { // the server lists the item no longer
		p.Item = shown.Item
	}
}

func (e *explorer) runPage(r *request, shown *run) *runPage {
	state := shown.snapshot()
	t := &Target{Name: shown.Server}
	if target := e.console.opts.Target; target != nil {
		t = target(shown.Server)
	}
	return &runPage{shown, state, copyAs(t, shown, state.Revision), r.role}
}

// runOf returns the run that a form names.
func (e *explorer) runOf(r *request) (*run, error) {
	id, _ := strconv.Atoi(r.FormValue("run"))
	if found := e.runs.find(id, r.principal); found != nil {
		return found, nil
	}
	return nil, &gateway.Problem{Status: http.StatusNotFound, Code: "unknown_run",
		Detail: fmt.Sprintf("run %d is not in the history: it contains the last %d runs", id, maxRuns)}
}

func (e *explorer) actCancel(r *request) (*Outcome, error) {
	found, err := e.runOf(r)
	if err != nil {
		return nil, err
	}
	found.cancel(errRunCancelled)
	return &Outcome{Location: found.place().URL(), Fragments: []Fragment{}, Message: "Cancelling."}, nil
}

// place returns the page of a run.
func (r *run) place() explorePlace {
	return explorePlace{Server: r.Server, Kind: r.Item.Kind, Name: r.Item.Name, Run: r.ID}
}

func (e *explorer) actAnswer(r *request) (*Outcome, error) {
	found, err := e.runOf(r)
	if err != nil {
		return nil, err
	}
	id, _ := strconv.Atoi(r.PostFormValue("question"))
	if err := found.decide(id, mcp.ElicitAction(r.PostFormValue("action")), r.PostForm); err != nil {
		return nil, &gateway.Problem{Status: http.StatusConflict, Code: "question_closed", Detail: err.Error()}
	}
	out := &Outcome{Location: found.place().URL()}
	for _, q := range found.snapshot().Questions {
		if q.ID == id {
			out.Fragments = []Fragment{q.fragment()}
		}
	}
	return out, nil
}

// data serves a part of a result: an image or audio for the page, and anything else as a download.
func (e *explorer) data(w http.ResponseWriter, r *request) {
	found, err := e.runOf(r)
	if err != nil {
		e.console.showError(w, r, http.StatusNotFound, "unknown_run", errorText(err))
		return
	}
	res := found.snapshot().Result
	part, err := strconv.Atoi(r.URL.Query().Get("part"))
	name, kind, data := "result.json", "application/json", found.result()
	switch {
	case res == nil || err != nil || part < -1 || part >= len(res.Blocks):
		e.console.showError(w, r, http.StatusNotFound, "", "the run has no such result")
		return
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
}
