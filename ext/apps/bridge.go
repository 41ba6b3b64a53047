package apps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// BridgeOptions configures a [Bridge]: how the page is reached, and what it may do. Setting a function declares to the page
// that the host can do it; what has no function is refused. The functions are called from many goroutines, and may take as
// long as a user does; their ctx ends when the page is torn down. An error of theirs refuses: an [*mcp.Error] is shown to
// the page, of any other it learns only that the host refused.
type BridgeOptions struct {
	// Send hands a message to the frame with the page, by postMessage. Messages come one after the other, each in one line.
	// It must not call the bridge. It has to be set.
	Send func(ctx context.Context, message json.RawMessage) error
	// Info is what the host calls itself. Default: a name without a version.
	Info mcp.Implementation
	// Context tells the page about the host. Default: nothing.
	Context *Context

	// AllowTool is asked before the page calls a tool of its server; the call goes through if it returns nil. The tool is
	// one that views may call. What the server says of it, annotations too, is no reason to trust it. Default: pages call
	// no tools.
	AllowTool func(ctx context.Context, tool *mcp.Tool, args json.RawMessage) error
	// AllowRead is asked before the page reads a resource of its server; the read goes through if it returns nil. Default:
	// pages read nothing.
	AllowRead func(ctx context.Context, uri string) error
	// OpenLink opens a page of the web, for the user and outside of the frame, with the user's consent. The URL is https,
	// or http, has no password in it, and is of visible ASCII characters alone.
	OpenLink func(ctx context.Context, url string) error
	// Message puts a text into the conversation in the user's name, with the user's consent. It may hold any characters.
	Message func(ctx context.Context, text string) error
	// UpdateModelContext keeps what the model is told of the page in the turns that follow, in place of what the page gave
	// before.
	UpdateModelContext func(ctx context.Context, c ModelContext) error
	// RequestDisplayMode shows the page in another way, one that the page and the host both have, and gives the one that it
	// is shown in then.
	RequestDisplayMode func(ctx context.Context, mode DisplayMode) (DisplayMode, error)
	// SizeChanged takes the size of the page's content in CSS pixels, each 0 to 32,767.
	SizeChanged func(width, height float64)
	// Log takes what the page logs. Default: it goes to HostOptions.Logger, if that takes the level debug.
	Log func(ctx context.Context, level mcp.LogLevel, data json.RawMessage)
}

// ModelContext is what a page tells the model, in JSON. It is a stranger's text, as a tool's result is.
//
// Spec: SEP-1865, ui/update-model-context.
type ModelContext struct {
	Content           json.RawMessage `json:"content"`           // an array of content blocks, or nil
	StructuredContent json.RawMessage `json:"structuredContent"` // an object, or nil
}

// Bounds of what pages say.
const (
	// maxMessage bounds one message: arguments of tools are texts that somebody typed, or a picture.
	maxMessage = 4 << 20
	// maxCalls bounds the requests of one page that are worked on: a page waits for what it has asked.
	maxCalls = 16
	// maxText bounds the text that a page puts into the conversation.
	maxText = 64 << 10
	// maxLength bounds the size of a page in pixels: what browsers lay out at all.
	maxLength = 32_767
)

// A Bridge stands between a page in its frame and its server. The host gives every message of the frame to [Bridge.Handle]
// and posts what it returns back; the other methods tell the page about the tool call that it shows. All methods are safe
// for concurrent use.
//
// A bridge serves one load of one page. It keeps no goroutine, so that there is nothing to close; [Bridge.Teardown] has
// the page put its things away.
//
// The host has to make sure where a message comes from: event.source is the frame's window. A frame without an origin
// has the event.origin "null", as everybody's has.
//
// Spec: SEP-1865, Communication Protocol.
type Bridge struct {
	host *Host
	page *Page
	opts BridgeOptions
	log  *slog.Logger

	sending sync.Mutex // held while messages are sent, in their order

	mu       sync.Mutex // guards the fields below
	phase    phase
	context  Context       // as the page knows it
	modes    []DisplayMode // of the page; nil when it does not say
	waiting  []json.RawMessage
	loaded   bool // the document has been handed out
	input    bool // the tool's arguments are on their way
	result   bool // the tool's result is on its way, or that there is none
	lastID   int
	answers  map[string]chan struct{} // requests to the page
	lastCall int
	calls    map[int]context.CancelCauseFunc // requests of the page that are worked on, and what ends them
	unloaded bool                            // the page has been torn down
}

// A phase is how far the handshake is.
type phase int

const (
	phaseNew phase = iota
	phaseAnswered
	phaseReady
)

// Bridge returns the bridge of a page of this host's server. It panics if the page or Send is nil.
func (h *Host) Bridge(p *Page, opts *BridgeOptions) *Bridge {
	if p == nil || opts == nil || opts.Send == nil {
		panic("apps: Bridge: the page or BridgeOptions.Send is nil")
	}
	b := &Bridge{host: h, page: p, opts: *opts, log: h.opts.Logger.With("page", p.URI),
		calls: map[int]context.CancelCauseFunc{}, answers: map[string]chan struct{}{}}
	b.opts.Info.Name = cmp.Or(b.opts.Info.Name, "mcp-host")
	b.opts.Info.Version = cmp.Or(b.opts.Info.Version, "unknown")
	if opts.Context != nil {
		b.context = *opts.Context
	}
	return b
}

// A message is what a page says.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// An answer is what the page is told.
type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitzero"`
	Error   *failure        `json:"error,omitzero"`
}

type failure struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitzero"`
}

// Handle takes one message of the page and gives the answer to post back; nil if there is none. It returns when the answer
// is there, which for a tool call is as long as the tool and the user take: each message has a goroutine of its own. The
// end of ctx, or [Bridge.Teardown], ends what the message began.
//
// The JSON may be anything. A page that breaks the protocol gets an error, and so does a page that has more than 16
// requests under way.
func (b *Bridge) Handle(ctx context.Context, raw json.RawMessage) json.RawMessage {
	m, bad := parseMessage(raw)
	switch {
	case bad != nil:
		b.log.WarnContext(ctx, "apps: malformed message of a page", "error", bad)
		return encodeAnswer(m.ID, nil, bad)
	case m.Method == "":
		b.answered(m)
		return nil
	case m.ID == nil:
		b.notified(ctx, m)
		return nil
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return encodeAnswer(m.ID, nil, err)
	}
	defer done()
	result, err := b.request(ctx, m)
	b.record(ctx, m, err)
	if err == nil {
		err = stillThere(ctx)
	}
	return encodeAnswer(m.ID, result, err)
}

// begin returns a request of the page a context that ends when the page is torn down. done is called when it is answered.
func (b *Bridge) begin(parent context.Context) (ctx context.Context, done func(), err error) {
	ctx, cancel := context.WithCancelCause(parent)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) == maxCalls {
		cancel(nil)
		return nil, nil, mcp.Errorf(mcp.CodeBusy, "more than %d requests are under way", maxCalls)
	}
	if b.unloaded {
		cancel(errUnloaded)
	}
	b.lastCall++
	call := b.lastCall
	b.calls[call] = cancel
	return ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.calls, call)
		cancel(nil)
	}, nil
}

// stillThere refuses what the page has asked for if it was torn down meanwhile.
func stillThere(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errUnloaded) {
		return refusal(errUnloaded)
	}
	return nil
}

// parseMessage reads a message strictly. The id is that of the message as far as it can be told.
//
// Spec: SEP-1865, Auditable Communication; JSON-RPC 2.0.
func parseMessage(raw json.RawMessage) (m message, bad *mcp.Error) {
	if len(raw) > maxMessage {
		return m, mcp.Errorf(mcp.CodeInvalidRequest, "the message has %d bytes, at most %d are taken", len(raw), maxMessage)
	}
	if !jsontext.Value(raw).IsValid() {
		return m, mcp.Errorf(mcp.CodeParseError, "the message is not JSON")
	}
	if err := jsonv2.Unmarshal(raw, &m); err != nil {
		return message{}, mcp.Errorf(mcp.CodeInvalidRequest, "the message is not one of JSON-RPC 2.0")
	}
	if !isID(m.ID) {
		m.ID = nil
		return m, mcp.Errorf(mcp.CodeInvalidRequest, "the id is neither a short string nor an integer")
	}
	switch response := m.Result != nil || m.Error != nil; {
	case m.JSONRPC != "2.0":
		return m, mcp.Errorf(mcp.CodeInvalidRequest, `jsonrpc is not "2.0"`)
	case m.Method == "" && !response, m.Method != "" && response:
		return m, mcp.Errorf(mcp.CodeInvalidRequest, "the message is neither a request nor an answer")
	case m.Params != nil && m.Params[0] != '{':
		return m, mcp.Errorf(mcp.CodeInvalidParams, "params is no object")
	}
	return m, nil
}

// isID reports whether raw is an id, or nil.
func isID(raw json.RawMessage) bool {
	const longest = 128
	switch {
	case raw == nil:
		return true
	case len(raw) > longest:
		return false
	case raw[0] == '"':
		return true
	}
	var n int64
	return raw[0] != 'n' && jsonv2.Unmarshal(raw, &n) == nil
}

func encodeAnswer(id, result json.RawMessage, err error) json.RawMessage {
	a := answer{JSONRPC: "2.0", ID: id, Result: result}
	if id == nil {
		a.ID = json.RawMessage("null")
	}
	if err != nil {
		a.Result, a.Error = nil, publicFailure(err)
	}
	raw, err := jsonv2.Marshal(&a)
	if err != nil {
		raw, _ = jsonv2.Marshal(&answer{JSONRPC: "2.0", ID: a.ID, Error: publicFailure(err)})
	}
	return raw
}

// errRefused is what a page learns of a host's refusal.
var errRefused = mcp.Errorf(codeRefused, "the host refused")

// codeRefused is the code that the specification shows for refusals.
const codeRefused = -32000

// publicFailure is what a page learns of an error: those of the protocol as they are, of others nothing.
func publicFailure(err error) *failure {
	var e *mcp.Error
	if errors.As(err, &e) {
		return &failure{Code: e.Code, Message: e.Message, Data: e.Data}
	}
	return &failure{Code: mcp.CodeInternalError, Message: "internal error"}
}

// record logs a request of the page. Arguments are not logged: they may be secrets.
//
// Spec: SEP-1865, Auditable Communication.
func (b *Bridge) record(ctx context.Context, m message, err error) {
	var target struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		URL  string `json:"url"`
	}
	_ = jsonv2.Unmarshal(m.Params, &target) // a request without a target has none to log
	const shown = 256
	what := cmp.Or(target.Name, target.URI, target.URL)
	b.log.InfoContext(ctx, "apps: request of a page", "method", m.Method[:min(len(m.Method), shown)],
		"target", what[:min(len(what), shown)], "bytes", len(m.Params), "error", err)
}
