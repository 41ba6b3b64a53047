// Package apps is the screen of the web console that shows MCP Apps: the page of a server's tool,
// in a frame of another origin, beside the messages that the page and the console exchange.
//
// The page is untrusted. Its frame is sandboxed without an origin of its own, so the page has no
// cookies and no storage. [Viewer] serves the page at a host name that the console does not use, so
// browsers also run the page in another process. Each tool that the page calls, each link and each
// download waits for the person.
package apps

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxCalls bounds the calls whose apps can be shown. The oldest is forgotten.
	maxCalls = 64
	// maxLoads bounds the apps that a person shows at the same time: each holds a connection and a stream.
	maxLoads = 8
	// checkEvery is how often a stream checks that its person is still logged in.
	checkEvery = time.Second
	// maxKept bounds the ended loads, whose logs can still be read.
	maxKept = 32
)

// Options configures the screen.
type Options struct {
	// Connect returns a connection to a server as the principal p, with the names that the server
	// uses.
	Connect func(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error)
	// Origins returns the origin of the console, as the browser of a request sees it, and the
	// origin of the [Viewer], whose host must be another. view is empty if this console shows no
	// apps to the browser.
	Origins func(r *http.Request) (console, view string)
	// Desk takes the requests of pages that wait for the person. Default: a desk of the screen.
	Desk *question.Desk
	// Mask replaces secrets in the arguments that a person sees. Default: nothing is replaced.
	Mask func(text string) string
	// Version is the version of the program.
	Version string
}

// A Call is a call of a tool with a view.
type Call struct {
	Run       int        // the ID in Explore
	ID        jsonrpc.ID // of the request tools/call
	Server    string
	Tool      string
	Principal *mcp.Principal
	Input     stdjson.RawMessage // the arguments
	Result    stdjson.RawMessage // nil if the call failed
	Link      string             // the page of the run
}

// A Viewer serves the pages of apps, each page once, at a URL with a random token.
type Viewer struct{ screen *screen }

// A screen contains the functions of the screen. It is safe for concurrent use.
type screen struct {
	site *page.Site
	opts Options

	mu      sync.Mutex     // guards the fields below
	calls   []*Call        // the oldest first
	last    int            // ID of a load
	loads   []*load        // the oldest first
	opening map[string]int // loads that are being made, by person
}

// New returns the screen, the handler of the pages, and a function that makes the app of a call
// available.
func New(site *page.Site, o *Options) (*page.Screen, *Viewer, func(*Call)) {
	s := &screen{site: site, opts: *o, opening: map[string]int{}}
	s.opts.Desk = cmp.Or(o.Desk, &question.Desk{})
	return &page.Screen{Routes: []*page.Route{
		{Path: "/apps", Role: page.RoleOperator, Title: "App", View: s.view},
		{Path: "/apps/open", Role: page.RoleOperator, Act: s.open},
		{Path: "/apps/set", Role: page.RoleOperator, Act: s.set},
		{Path: "/apps/close", Role: page.RoleOperator, Act: s.close},
		{Path: "/apps/file", Role: page.RoleOperator, Serve: s.file},
		{Path: "/apps/stream", Role: page.RoleOperator, Serve: s.stream, Stream: true},
		{Path: "/apps/message", Role: page.RoleOperator, Serve: s.message, Post: true},
	}}, &Viewer{s}, s.add
}

func (s *screen) add(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	s.calls = s.calls[max(0, len(s.calls)-maxCalls):]
}

// loadOf returns the load that a request names, of the person.
func (s *screen) loadOf(r *page.Request) (*load, error) {
	id, _ := strconv.Atoi(r.FormValue("load"))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.loads {
		if l.ID == id && question.PersonOf(l.Call.Principal) == question.PersonOf(r.Principal) {
			return l, nil
		}
	}
	return nil, page.Problem(http.StatusNotFound, "", "there is no app %d: run its tool again", id)
}

// An appPage is the data of the page and its parts.
type appPage struct {
	*load
	State     state
	Questions []*question.Question // that wait for the person
	Source    string               // the URL of the page, if it can be loaded
	Origin    string               // of the page
	Widths    []string
	Modes     []apps.DisplayMode
}

// link returns the page of the load.
func (l *load) link() string { return fmt.Sprintf("/apps?load=%d", l.ID) }

// Sandbox and Allow are attributes of the frame.
func (l *load) Sandbox() string { return apps.Sandbox }
func (l *load) Allow() string   { return l.page.Allow() }

// URI, Size, Digest and Dropped describe the document.
func (l *load) URI() string       { return l.page.URI }
func (l *load) Size() int         { return len(l.page.HTML) }
func (l *load) Digest() string    { return l.page.Digest() }
func (l *load) Dropped() []string { return l.page.Dropped }

func (s *screen) view(r *page.Request) (*page.View, error) {
	l, err := s.loadOf(r)
	if err != nil {
		return nil, err
	}
	_, origin := s.opts.Origins(r.Request)
	p := &appPage{load: l, State: l.snapshot(), Questions: s.opts.Desk.Of(l.Call.Run, l.ID), Origin: origin,
		Widths: widths, Modes: modes}
	if !p.State.Served && p.State.Ended == "" {
		p.Source = origin + viewPath + l.token
	}
	v := &page.View{Title: l.Call.Tool + " · App", Body: p.body(), Frames: origin}
	v.Fragments = []page.Fragment{
		{ID: "app-state", Body: p.statePart()},
		{ID: "app-files", Body: p.filesPart(), Version: fmt.Sprint(len(p.State.Files))},
		{ID: "app-log", Body: p.logPart(), Version: fmt.Sprint(p.State.Logged)},
	}
	v.Fragments = append(v.Fragments, question.Fragments(p.Questions)...)
	return v, nil
}

// open begins a load of the app of a call.
func (s *screen) open(r *page.Request) (*page.Outcome, error) {
	run, _ := strconv.Atoi(r.PostFormValue("run"))
	person := question.PersonOf(r.Principal)
	call, err := s.begin(run, person)
	if err != nil {
		return nil, err
	}
	defer s.began(person)
	embedder, origin := s.opts.Origins(r.Request)
	if origin == "" {
		return nil, page.Problem(http.StatusConflict, "", "no app is shown: open the console at "+
			"another host than the pages of apps, whose host --view-origin or console.viewOrigin names")
	}
	l, err := s.newLoad(r.Context(), call, embedder)
	if err != nil {
		return nil, err
	}
	return &page.Outcome{Location: l.link()}, nil
}

// begin returns the call of a run of a person, and counts the load that is being made. The caller must call
// began when the load is kept or has failed.
func (s *screen) begin(run int, person string) (*Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.calls, func(c *Call) bool {
		return c.Run == run && question.PersonOf(c.Principal) == person
	})
	if at < 0 {
		return nil, page.Problem(http.StatusNotFound, "", "run %d has no app, or is too old: run the tool again", run)
	}
	running := s.opening[person]
	for _, l := range s.loads {
		if question.PersonOf(l.Call.Principal) == person && l.snapshot().Ended == "" {
			running++
		}
	}
	if running >= maxLoads {
		return nil, page.Problem(http.StatusConflict, "", "%d apps are shown already: close an app first", maxLoads)
	}
	s.opening[person]++
	return s.calls[at], nil
}

func (s *screen) began(person string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening[person]--; s.opening[person] == 0 {
		delete(s.opening, person)
	}
}

// keep adds a load, and forgets the oldest ended loads.
func (s *screen) keep(l *load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	l.ID = s.last
	s.loads = append(s.loads, l)
	for i := 0; i < len(s.loads) && len(s.loads) > maxKept; {
		if s.loads[i].snapshot().Ended == "" {
			i++
			continue
		}
		s.loads = slices.Delete(s.loads, i, i+1)
	}
}

// close tears an app down.
func (s *screen) close(r *page.Request) (*page.Outcome, error) {
	l, err := s.loadOf(r)
	if err != nil {
		return nil, err
	}
	l.end("Closed.")
	return &page.Outcome{Fragments: []page.Fragment{}}, nil
}

// message passes the messages of the page, a message on each line, to the bridge of the page. The
// stream carries the responses, so a page that waits for the person occupies no connection of the
// browser.
func (s *screen) message(w http.ResponseWriter, r *page.Request) error {
	l, err := s.loadOf(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return page.Problem(http.StatusRequestEntityTooLarge, "", "the messages are too large")
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		l.handle(stdjson.RawMessage(line))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// stream sends the messages and changes for the script of the page, a JSON object a line. The end of the
// stream is the end of the load. It ends with the login of the person.
func (s *screen) stream(w http.ResponseWriter, r *page.Request) error {
	l, err := s.loadOf(r)
	if err != nil {
		return err
	}
	if !l.attach() {
		return page.Problem(http.StatusConflict, "", "the app is shown in another page, or has ended")
	}
	defer l.end("The page was closed.")
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for r.Check() {
		lines, ended := l.take()
		for _, line := range lines {
			if _, err := w.Write(append(line, '\n')); err != nil {
				return nil //nolint:nilerr // the browser left
			}
		}
		if err := out.Flush(); err != nil || ended {
			return nil //nolint:nilerr // the browser left
		}
		select {
		case <-l.wake:
		case <-check.C:
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

// file serves a download that the person allowed.
func (s *screen) file(w http.ResponseWriter, r *page.Request) error {
	l, err := s.loadOf(r)
	if err != nil {
		return err
	}
	at, _ := strconv.Atoi(r.FormValue("file"))
	files := l.snapshot().Files
	if at < 0 || at >= len(files) || files[at].Data == nil {
		return page.Problem(http.StatusNotFound, "", "the app offers no file %d", at)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", attachment(files[at].Name))
	_, _ = w.Write(files[at].Data) // an error means that the browser left
	return nil
}

const viewPath = "/view/"

// ServeHTTP serves the page of a load once, so that no other document can use the bridge of the
// load.
func (v *Viewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	token, ok := strings.CutPrefix(r.URL.Path, viewPath)
	if !ok || r.Method != http.MethodGet {
		http.Error(w, "pages of apps are shown by the console only", http.StatusNotFound)
		return
	}
	v.screen.mu.Lock()
	at := slices.IndexFunc(v.screen.loads, func(l *load) bool { return l.token == token })
	var l *load
	if at >= 0 {
		l = v.screen.loads[at]
	}
	v.screen.mu.Unlock()
	if l == nil || !l.serve() {
		http.Error(w, "this page of an app was loaded already: open it again in the console", http.StatusGone)
		return
	}
	maps.Copy(w.Header(), http.Header(l.header))
	_, _ = io.WriteString(w, l.page.HTML) // an error means that the browser left
}
