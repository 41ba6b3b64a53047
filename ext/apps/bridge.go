package apps

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// BridgeOptions configures a [Bridge]: how it sends messages to the page, and what the page may do.
// A function that is set declares a capability to the page; requests without a function are
// refused. The functions are called concurrently and may wait for the user. Their ctx ends when the
// page is torn down. A function that returns an error refuses the request: an [*mcp.Error] is sent
// to the page, any other error is replaced by "the host refused".
type BridgeOptions struct {
	// Send posts a message to the frame of the page, by postMessage. It is not called concurrently,
	// and must not call the bridge. A message is one line. Send is required.
	Send func(ctx context.Context, message json.RawMessage) error
	// Info identifies the host. Default: the name "mcp-host".
	Info mcp.Implementation
	// Context describes the host to the page. Default: an empty context.
	Context *Context

	// AllowTool is called before the page calls a tool of its server that views may call. A nil
	// error allows the call. The server's description of the tool, with its annotations, must not
	// be trusted. Default: pages cannot call tools.
	AllowTool func(ctx context.Context, tool *mcp.Tool, args json.RawMessage) error
	// AllowRead is called before the page reads a resource of its server. A nil error allows it.
	// Default: pages cannot read resources.
	AllowRead func(ctx context.Context, uri string) error
	// OpenLink opens a URL outside the frame, with the user's consent. It is an http or https URL
	// without user information, in visible ASCII characters.
	OpenLink func(ctx context.Context, url string) error
	// DownloadFile saves 1 to 16 files, with the user's consent.
	DownloadFile func(ctx context.Context, files []Download) error
	// Message adds a text to the conversation as the user's, with the user's consent. It may have
	// any characters.
	Message func(ctx context.Context, text string) error
	// UpdateModelContext stores the content of the page that the model is shown in later turns. It
	// replaces the previous content of the page.
	UpdateModelContext func(ctx context.Context, c ModelContext) error
	// RequestDisplayMode shows the page in a mode that both the page and the host support, and
	// returns the mode in which the page is then shown.
	RequestDisplayMode func(ctx context.Context, mode DisplayMode) (DisplayMode, error)
	// Sample continues a conversation of 1 to 256 messages with the host's model, with the user's
	// consent. It is not called concurrently. The host chooses the model and limits the cost.
	Sample      func(ctx context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error)
	SampleTools bool // declares that Sample supports tools in its params, at most 50
	// NotifiesTools declares that the host calls [Bridge.ToolsChanged].
	NotifiesTools bool
	// AppToolsChanged is called when the page's tools changed, and not again before
	// [Bridge.AppTools] is called.
	AppToolsChanged func()
	// RequestTeardown is called when the page asks to be removed. A host that agrees must call
	// [Bridge.Teardown] in a goroutine.
	RequestTeardown func()
	// SizeChanged receives the size of the page's content in CSS pixels, each from 0 to 32,767.
	SizeChanged func(width, height float64)
	// Log receives the log messages of the page. Default: it is logged to HostOptions.Logger with
	// the level debug.
	Log func(ctx context.Context, level mcp.LoggingLevel, data json.RawMessage)
}

// ModelContext is the content that a page sends for the model. Like a tool's result it is
// untrusted.
//
// Spec: SEP-1865, ui/update-model-context.
type ModelContext struct {
	Content           json.RawMessage `json:"content"`           // an array of content blocks, or nil
	StructuredContent json.RawMessage `json:"structuredContent"` // an object, or nil
}

// Limits for messages of pages.
const (
	// maxMessage limits one message. Arguments of tools may contain an image.
	maxMessage = 4 << 20
	// maxDepth limits how deep arrays and objects are nested in a message, as package jsonrpc does
	// for messages of servers. The limit bounds the stack of recursive decoders.
	maxDepth = 64
	// maxCalls limits the requests of one page that are handled at the same time.
	maxCalls = 16
	// maxNotifications limits the notifications and malformed messages of one page in one second.
	// A page that is resized in every frame of a display sends fewer.
	maxNotifications = 120
	// maxText limits the text that a page adds to the conversation.
	maxText = 64 << 10
	// maxMessages limits a page's conversation with the model, which the user may review.
	maxMessages = 256
	// maxLength limits the size of a page in pixels.
	maxLength = 32_767
)

// A Bridge connects a load of a page with the host and the page's server. The host passes every
// message of the frame to [Bridge.Handle] and posts the response back. The other methods notify the
// page of the tool call that it shows. All methods are safe for concurrent use.
//
// The host must check that event.source of a message is the frame's window. event.origin does not
// identify the frame: it is "null" for every sandboxed frame.
//
// Spec: SEP-1865, Communication Protocol.
type Bridge struct {
	host *Host
	page *Page
	opts BridgeOptions
	log  *slog.Logger

	sending  sync.Mutex // held while messages are sent, to keep their order
	sampling sync.Mutex // held while Sample is called

	mu       sync.Mutex // guards the fields below
	phase    phase
	context  Context           // as sent to the page
	modes    []DisplayMode     // of the page; nil if it does not declare them
	queued   []json.RawMessage // until the page is ready
	loaded   bool              // the document was sent
	shown    shown
	lastID   int
	pending  map[string]chan message             // requests to the page
	calls    map[*context.CancelCauseFunc]string // the ids of the page's requests
	unloaded bool                                // Teardown was called
	app      App
	appTools map[string]*mcp.Tool // as listed last
	appNews  bool                 // AppToolsChanged was called since the tools were listed

	second  time.Time // the beginning of the second in which the following are counted
	counted int       // notifications and malformed messages
	dropped int       // those of them that were dropped
}

// A phase is the state of the handshake.
type phase int

const (
	phaseNew         phase = iota // ui/initialize was not received
	phaseInitialized              // the response to ui/initialize was returned
	phaseReady                    // ui/notifications/initialized was received
)

// shown is how much of the tool call was sent to the page, or queued.
type shown int

const (
	shownNothing shown = iota
	shownInput         // the arguments
	shownResult        // the result, or the cancellation
)

// Bridge returns a Bridge for a page of this host's server. It panics if p or opts.Send is nil.
func (h *Host) Bridge(p *Page, opts *BridgeOptions) *Bridge {
	if p == nil || opts == nil || opts.Send == nil {
		panic("apps: Bridge: the page or BridgeOptions.Send is nil")
	}
	b := &Bridge{host: h, page: p, opts: *opts, log: h.opts.Logger.With("page", p.URI),
		calls: map[*context.CancelCauseFunc]string{}, pending: map[string]chan message{}}
	b.opts.Info.Name = cmp.Or(b.opts.Info.Name, "mcp-host")
	b.opts.Info.Version = cmp.Or(b.opts.Info.Version, "unknown")
	if opts.Context != nil {
		b.context = *opts.Context
	}
	return b
}

// A message is a message of a page.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// An outgoing message is a message to a page.
type outgoing struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitzero"`
	Method  string          `json:"method,omitzero"`
	Params  any             `json:"params,omitzero"`
	Result  json.RawMessage `json:"result,omitzero"`
	Error   *mcp.Error      `json:"error,omitzero"`
}

// Handle handles one message of the page. It returns the response to post back, or nil if no
// response is due. It waits for the tool and the user: call it in a goroutine for each message.
// When ctx ends, or [Bridge.Teardown] is called, the request is cancelled. A request that the page
// cancels gets no response. A cancellation that arrives before its request has no effect.
//
// raw may be anything. The page gets an error for a message that violates the protocol, and for a
// request while 16 others are being handled. Of the notifications and malformed messages of a
// second, all after the first 120 are dropped.
func (b *Bridge) Handle(ctx context.Context, raw json.RawMessage) json.RawMessage {
	m, bad := parseMessage(raw)
	if isNotification := m.Method != "" && m.ID == nil; (bad != nil || isNotification) && !b.admit(ctx) {
		return nil
	}
	switch {
	case bad != nil:
		b.log.WarnContext(ctx, "apps: malformed message from a page", "error", bad)
		if m.Method == "" && (m.Result != nil || m.Error != nil) {
			m.Error, _ = jsonv2.Marshal(bad)
			b.handleResponse(m) // otherwise the request would wait for its timeout
			return nil
		}
		return encodeResponse(m.ID, nil, bad)
	case m.Method == "":
		b.handleResponse(m)
		return nil
	case m.ID == nil:
		b.handleNotification(ctx, m)
		return nil
	}
	ctx, done, err := b.startCall(ctx, m.ID)
	if err != nil {
		return encodeResponse(m.ID, nil, err)
	}
	defer done()
	result, err := b.request(ctx, m)
	b.logRequest(ctx, m, err)
	if err == nil {
		err = checkEnded(ctx)
	}
	if errors.Is(context.Cause(ctx), errCancelled) {
		return nil
	}
	return encodeResponse(m.ID, result, err)
}

// admit reports whether a notification or malformed message is within maxNotifications.
func (b *Bridge) admit(ctx context.Context) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.second) >= time.Second {
		if b.dropped > 0 {
			b.log.WarnContext(ctx, "apps: messages from a page dropped: too many in one second",
				"dropped", b.dropped, "limit", maxNotifications)
		}
		b.second, b.counted, b.dropped = now, 0, 0
	}
	if b.counted++; b.counted > maxNotifications {
		b.dropped++
		return false
	}
	return true
}

// startCall returns a context for a request of the page. The context ends when the page cancels the
// request or is torn down. The caller must call done after handling the request.
func (b *Bridge) startCall(parent context.Context, id json.RawMessage) (ctx context.Context, done func(), err error) {
	ctx, cancel := context.WithCancelCause(parent)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) == maxCalls {
		cancel(nil)
		return nil, nil, mcp.Errorf(mcp.CodeBusy, "more than %d requests at the same time", maxCalls)
	}
	if b.unloaded {
		cancel(errUnloaded)
	}
	b.calls[&cancel] = string(id)
	return ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.calls, &cancel)
		cancel(nil)
	}, nil
}

// errCancelled is the cause in the context of a request that the page cancelled.
var errCancelled = errors.New("apps: the page cancelled the request")

// checkEnded returns an error if the page cancelled the request or was torn down.
func checkEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errUnloaded) || errors.Is(cause, errCancelled) {
		return refusal(cause)
	}
	return nil
}

// parseMessage parses a message strictly. With an error, m has the id if it is known. Spec:
// SEP-1865, Auditable Communication; JSON-RPC 2.0.
func parseMessage(raw json.RawMessage) (m message, bad *mcp.Error) {
	if len(raw) > maxMessage {
		return m, mcp.Errorf(mcp.CodeInvalidRequest, "the message has %d bytes, the limit is %d", len(raw), maxMessage)
	}
	deep := isDeep(raw)
	if !deep && !jsontext.Value(raw).IsValid() {
		return m, mcp.Errorf(jsonrpc.CodeParseError, "the message is not JSON")
	}
	if err := jsonv2.Unmarshal(raw, &m); err != nil {
		return message{}, mcp.Errorf(mcp.CodeInvalidRequest, "the message is not a JSON-RPC 2.0 message")
	}
	if !isID(m.ID) {
		m.ID = nil
		return m, mcp.Errorf(mcp.CodeInvalidRequest, "the id is neither a short string nor an integer")
	}
	if deep {
		return m, mcp.Errorf(mcp.CodeInvalidRequest, "the message is nested more than %d levels deep", maxDepth)
	}
	switch response := m.Result != nil || m.Error != nil; {
	case m.JSONRPC != "2.0":
		return m, mcp.Errorf(mcp.CodeInvalidRequest, `jsonrpc is not "2.0"`)
	case m.Method == "" && !response, m.Method != "" && response:
		return m, mcp.Errorf(mcp.CodeInvalidRequest, "the message is neither a request nor a response")
	case m.Params != nil && m.Params[0] != '{':
		return m, mcp.Errorf(mcp.CodeInvalidParams, "params is not an object")
	}
	return m, nil
}

// isDeep reports whether a JSON text nests arrays and objects more than maxDepth levels deep.
func isDeep(text []byte) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	for d.StackDepth() <= maxDepth {
		if _, err := d.ReadToken(); err != nil {
			return false // the end of the text, or a syntax error
		}
	}
	return true
}

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

func encodeResponse(id, result json.RawMessage, err error) json.RawMessage {
	r := outgoing{JSONRPC: "2.0", ID: id, Result: result}
	if id == nil {
		r.ID = json.RawMessage("null")
	}
	if err != nil {
		r.Result, r.Error = nil, errorForPage(err)
	}
	raw, err := jsonv2.Marshal(&r)
	if err != nil {
		raw, _ = jsonv2.Marshal(&outgoing{JSONRPC: "2.0", ID: r.ID, Error: errInternal})
	}
	return raw
}

// errRefused is sent to the page if the host refuses a request. Its code is that of a sampling
// request that the user rejects: 2026-07-28 forbids new meanings for the codes from -32019 to
// -32000.
var errRefused = mcp.Errorf(-1, "the host refused")

var errInternal = mcp.Errorf(mcp.CodeInternalError, "internal error")

// errorForPage returns the error that a page is sent: an [*mcp.Error] as it is, and an internal
// error for all others.
func errorForPage(err error) *mcp.Error {
	var e *mcp.Error
	if errors.As(err, &e) {
		return e
	}
	return errInternal
}

// logRequest logs a request of the page, without its arguments, which may be secrets.
func (b *Bridge) logRequest(ctx context.Context, m message, err error) {
	var target requestParams
	_ = jsonv2.Unmarshal(m.Params, &target) // not all requests have a target
	b.log.InfoContext(ctx, "apps: request from a page", "method", fmt.Sprintf("%.256s", m.Method), "target",
		fmt.Sprintf("%.256s", cmp.Or(target.Name, target.URI, target.URL)), "bytes", len(m.Params), "error", err)
}
