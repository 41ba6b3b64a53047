package apps

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// startTimeout bounds connecting to the server and reading the page.
	startTimeout = 2 * time.Minute
	// attachTimeout bounds the wait of a load for its page in the browser.
	attachTimeout = time.Minute
	// teardownTimeout bounds the time in which an app may save its state.
	teardownTimeout = 2 * time.Second
	// callTimeout bounds a tool call of the app, from the answer of the person.
	callTimeout = time.Minute
	// maxQueued and maxQueuedBytes bound the objects that the script of the page has not fetched.
	maxQueued, maxQueuedBytes = 512, 32 << 20
	// maxEntries bounds the log, and maxEntry the text of an entry.
	maxEntries, maxEntry = 200, 2 << 10
	// maxNoted bounds the entries of a second. A page that sends more is not read by a person.
	maxNoted = 50
	// changedPause is the least time between two notices of the pages about a load.
	changedPause = 100 * time.Millisecond
	// maxHandled bounds the messages of a page that wait for the bridge, which handles fewer requests.
	maxHandled = 128
	// maxFiles bounds the downloads of a load.
	maxFiles = 32
	// minHeight and maxHeight bound the height that an app chooses in the flow of the page, in
	// pixels.
	minHeight, maxHeight = 80, 900
)

// widths are the widths of a frame that a person may select, in pixels.
var widths = []string{"full", "390", "768"}

// modes are the display modes of the console.
var modes = []apps.DisplayMode{apps.DisplayInline, apps.DisplayFullscreen, apps.DisplayPiP}

// A load is an app that is shown: one document and its bridge.
type load struct {
	ID   int
	Call *Call

	screen *screen
	page   *apps.Page
	header map[string][]string
	token  string
	client *mcp.Client
	bridge *apps.Bridge
	ctx    context.Context // ends with the load
	cancel context.CancelFunc
	wake   chan struct{} // buffered(1): wakes the stream
	slots  chan struct{} // a token for each message that is handled

	mu     sync.Mutex // guards the fields below
	state  state
	queue  [][]byte
	queued int       // bytes
	second time.Time // of the entries that noted counts
	noted  int
	told   time.Time // when the pages were told about a change last
	isDue  bool      // a goroutine will tell them
}

// A state is the state of a load, as the page of the console shows it. Its slices must not be
// changed.
type state struct {
	Served   bool // the document was loaded
	Attached bool // the browser reads the stream
	Ended    string
	Theme    string
	Mode     apps.DisplayMode
	Width    string
	App      apps.App
	Tools    []*mcp.Tool // of the page
	Files    []apps.Download
	Log      []entry
	Logged   int // rises with each entry
}

// An entry is a message in the log.
type entry struct {
	Key  string
	Time time.Time
	Out  bool // from the console to the page
	What string
	Text string
}

// newLoad connects, reads the page and makes its bridge.
func (s *screen) newLoad(ctx context.Context, c *Call, embedder string) (*load, error) {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	transport, err := s.opts.Connect(starting, c.Server, c.Principal)
	if err != nil {
		return nil, err
	}
	client, err := mcp.Connect(starting, transport, apps.Declare(&mcp.ClientOptions{
		Info: mcp.Implementation{Name: "patchbay-console", Version: s.opts.Version}, Logger: s.site.Logger,
	}))
	if err != nil {
		return nil, err
	}
	l := &load{Call: c, screen: s, client: client, token: rand.Text(), wake: make(chan struct{}, 1),
		slots: make(chan struct{}, maxHandled),
		state: state{Theme: "light", Mode: apps.DisplayInline, Width: "full"}}
	if err := l.read(starting, embedder); err != nil {
		_ = client.Close()
		return nil, page.Problem(http.StatusConflict, "", "%s", err)
	}
	l.ctx, l.cancel = context.WithCancel(s.site.Context())
	s.keep(l)
	s.site.Background(l.expire)
	return l, nil
}

// read reads the page and passes the call to its bridge.
func (l *load) read(ctx context.Context, embedder string) error {
	h := apps.NewHost(l.client, &apps.HostOptions{Logger: l.screen.site.Logger})
	var err error
	if l.page, err = h.Page(ctx, l.Call.Tool); err != nil {
		return err
	}
	if l.page == nil {
		return fmt.Errorf("the tool %s has no view any more", l.Call.Tool)
	}
	if l.header, err = l.page.Header(&apps.HeaderOptions{Embedder: embedder}); err != nil {
		return fmt.Errorf("open the console by a host name or as 127.0.0.1: %w", err)
	}
	l.bridge = h.Bridge(l.page, l.options(l.tool(ctx)))
	if err := l.bridge.ToolInput(ctx, l.Call.Input); err != nil {
		return err
	}
	var res mcp.CallToolResult
	if l.Call.Result == nil || stdjson.Unmarshal(l.Call.Result, &res) != nil {
		return l.bridge.ToolCancelled(ctx, "the call failed")
	}
	return l.bridge.ToolResult(ctx, &res)
}

// tool returns the definition of the tool, or nil.
func (l *load) tool(ctx context.Context) *apps.ToolInfo {
	for t, err := range l.client.Tools(ctx) {
		if err != nil {
			return nil
		}
		if t.Name == l.Call.Tool {
			return &apps.ToolInfo{ID: l.Call.ID, Tool: t}
		}
	}
	return nil
}

func (l *load) options(tool *apps.ToolInfo) *apps.BridgeOptions {
	return &apps.BridgeOptions{
		Send: l.send,
		Info: mcp.Implementation{Name: "patchbay-console", Version: l.screen.opts.Version},
		Context: &apps.Context{ToolInfo: tool, Theme: l.state.Theme, DisplayMode: l.state.Mode,
			AvailableDisplayModes: modes, UserAgent: "patchbay-console", Platform: "web",
			ContainerDimensions: dimensions(l.state.Width)},
		AllowTool:    l.allowTool,
		AllowRead:    func(context.Context, string) error { return nil }, // the resources belong to the page's server
		OpenLink:     l.openLink,
		DownloadFile: l.download,
		// The console has no conversation: the log shows the texts.
		Message:            func(context.Context, string) error { return nil },
		UpdateModelContext: func(context.Context, apps.ModelContext) error { return nil },
		RequestDisplayMode: func(_ context.Context, m apps.DisplayMode) (apps.DisplayMode, error) {
			l.show(func(s *state) { s.Mode = m })
			return m, nil
		},
		SizeChanged: func(_, height float64) {
			l.push(map[string]any{"height": int(min(max(height, minHeight), maxHeight))})
		},
		RequestTeardown: func() { l.end("The app asked to be closed.") },
		AppToolsChanged: func() { l.screen.site.Background(l.listTools) },
	}
}

// dimensions returns the dimensions of the frame, for the page.
func dimensions(width string) *apps.Dimensions {
	d := &apps.Dimensions{MaxHeight: maxHeight}
	if n := 0; width != "full" {
		_, _ = fmt.Sscan(width, &n) // one of widths
		d.Width = float64(n)
	}
	return d
}

func (l *load) snapshot() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// update changes the state and notifies the pages.
func (l *load) update(change func(s *state)) {
	l.mu.Lock()
	change(&l.state)
	wait := time.Until(l.told.Add(changedPause))
	isDue := l.isDue
	switch {
	case isDue:
	case wait > 0:
		l.isDue = true
	default:
		l.told = time.Now()
	}
	l.mu.Unlock()
	switch {
	case isDue: // the pages will be told
	case wait > 0:
		l.screen.site.Background(func(ctx context.Context) { l.tell(ctx, wait) })
	default:
		l.screen.site.Changed()
	}
}

// tell tells the pages about the changes after a pause.
func (l *load) tell(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return
	}
	l.mu.Lock()
	l.isDue, l.told = false, time.Now()
	l.mu.Unlock()
	l.screen.site.Changed()
}

// show changes the state, and the width and display mode of the frame.
func (l *load) show(change func(s *state)) {
	l.update(change)
	s := l.snapshot()
	l.push(map[string]any{"mode": s.Mode, "width": s.Width})
}

// push queues an object for the script of the page.
func (l *load) push(v any) {
	line, err := stdjson.Marshal(v)
	if err != nil {
		return
	}
	l.mu.Lock()
	full := len(l.queue) >= maxQueued || l.queued+len(line) > maxQueuedBytes
	if !full {
		l.queue, l.queued = append(l.queue, line), l.queued+len(line)
	}
	l.mu.Unlock()
	if full {
		l.end("The browser does not read the messages for the app.")
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the queued lines, and whether the load ended.
func (l *load) take() (lines [][]byte, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, l.queue, l.queued = l.queue, nil, 0
	return lines, l.ctx.Err() != nil
}

// send passes a message to the page.
func (l *load) send(_ context.Context, m stdjson.RawMessage) error {
	l.note(true, m)
	l.push(map[string]stdjson.RawMessage{"message": m})
	return nil
}

// handle passes a message of the page to the bridge. The bridge limits the requests in progress.
func (l *load) handle(m stdjson.RawMessage) {
	select {
	case <-l.ctx.Done():
		return
	case l.slots <- struct{}{}:
	}
	l.note(false, m)
	l.screen.site.Background(func(context.Context) { // ends with l.ctx
		defer func() { <-l.slots }()
		ctx := mcp.WithCallOptions(l.ctx, mcp.CallOptions{Timeout: callTimeout})
		if answer := l.bridge.Handle(ctx, m); answer != nil {
			_ = l.send(ctx, answer)
		}
		if app := l.bridge.App(); app != l.snapshot().App {
			l.update(func(s *state) { s.App = app })
		}
	})
}

// listTools lists the tools that the page offers.
func (l *load) listTools(context.Context) {
	tools, err := l.bridge.AppTools(l.ctx)
	if err != nil {
		l.log(entry{Out: true, What: "tools/list failed", Text: page.ErrorText(err)})
	}
	l.update(func(s *state) { s.Tools = tools })
}

// note adds a message to the log.
func (l *load) note(out bool, m stdjson.RawMessage) {
	var head struct {
		ID     stdjson.RawMessage
		Method string
		Error  stdjson.RawMessage
	}
	_ = stdjson.Unmarshal(m, &head) // the page may send anything
	const longest = 64
	what := cut(head.Method, longest)
	switch {
	case head.Method == "" && head.Error != nil:
		what = "error"
	case head.Method == "":
		what = "response"
	}
	if head.ID != nil {
		what += " " + cut(string(head.ID), longest)
	}
	l.log(entry{Out: out, What: what, Text: cut(string(m), maxEntry)})
}

func cut(text string, most int) string {
	if len(text) <= most {
		return strings.ToValidUTF8(text, "�")
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// log adds an entry. The last entry of a second with too many counts the others.
func (l *load) log(e entry) {
	l.update(func(s *state) {
		now, all := time.Now(), slices.Clone(s.Log)
		if now.Sub(l.second) >= time.Second {
			l.second, l.noted = now, 0
		}
		l.noted++
		if dropped := l.noted - maxNoted; dropped > 0 {
			e = entry{What: fmt.Sprintf("messages dropped from the log: %d", dropped)}
			all = all[:len(all)-min(dropped-1, 1)] // without the count before
		}
		s.Logged++
		e.Key, e.Time = fmt.Sprintf("app-message-%d", s.Logged), now
		all = append(all, e)
		s.Log = all[max(0, len(all)-maxEntries):]
	})
}

// serve reports whether the document may be served now, which happens once.
func (l *load) serve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	may := l.state.Attached && !l.state.Served && l.state.Ended == ""
	l.state.Served = l.state.Served || may
	return may
}

// attach reports whether the stream may begin, which happens once.
func (l *load) attach() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	may := !l.state.Attached && l.state.Ended == ""
	l.state.Attached = l.state.Attached || may
	return may
}

// expire ends a load that no browser shows.
func (l *load) expire(context.Context) {
	select {
	case <-l.ctx.Done():
	case <-time.After(attachTimeout):
		if !l.snapshot().Attached {
			l.end("The page was not opened.")
		}
	}
}

// end tears the app down, and ends the load.
func (l *load) end(reason string) {
	first := false
	l.update(func(s *state) {
		first = s.Ended == ""
		if first {
			s.Ended = reason
		}
	})
	if !first {
		return
	}
	l.screen.opts.Desk.Withdraw(l.Call.Run, l.ID)
	l.screen.site.Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, teardownTimeout)
		defer cancel()
		err := l.bridge.Teardown(ctx, reason)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			l.screen.site.Logger.Debug("console: teardown of an app", "error", err)
		}
		l.push(map[string]string{"end": reason})
		l.cancel()
		_ = l.client.Close() // the session is over
		select {
		case l.wake <- struct{}{}:
		default:
		}
	})
}

// attachment returns the header of a download.
func attachment(name string) string {
	return mime.FormatMediaType("attachment", map[string]string{"filename": name})
}
