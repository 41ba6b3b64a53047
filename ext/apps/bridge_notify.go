package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// notified takes a notification of the page. Those that mean nothing here mean nothing.
func (b *Bridge) notified(ctx context.Context, m message) {
	var err error
	switch m.Method {
	case "ui/notifications/initialized":
		err = b.ready(ctx)
	case "ui/notifications/sandbox-proxy-ready":
		err = b.load(ctx)
	case "ui/notifications/size-changed":
		b.sizeChanged(m.Params)
	case "notifications/message":
		b.logged(ctx, m.Params)
	}
	if err != nil {
		b.log.WarnContext(ctx, "apps: cannot reach a page", "error", err)
	}
}

// ready sends what has waited for the page. Nothing is sent before.
//
// Spec: SEP-1865, Sandbox proxy, 6.
func (b *Bridge) ready(ctx context.Context) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.mu.Lock()
	if b.phase != phaseAnswered || b.unloaded {
		b.mu.Unlock()
		return nil
	}
	b.phase = phaseReady
	waiting := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	for _, m := range waiting {
		if err := b.opts.Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// load hands the document to the sandbox proxy of a host that is a web page.
//
// Spec: SEP-1865, Sandbox proxy.
func (b *Bridge) load(ctx context.Context) error {
	raw, err := notification("ui/notifications/sandbox-resource-ready", &struct {
		HTML        string      `json:"html"`
		Sandbox     string      `json:"sandbox"`
		CSP         CSP         `json:"csp,omitzero"`
		Permissions Permissions `json:"permissions,omitzero"`
	}{b.page.HTML, Sandbox, b.page.Frame.CSP, b.page.Frame.Permissions})
	if err != nil {
		return err
	}
	b.mu.Lock()
	again := b.loaded || b.unloaded
	b.loaded = true
	b.mu.Unlock()
	if again {
		return errors.New("the document has been handed out already")
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.opts.Send(ctx, raw)
}

func (b *Bridge) sizeChanged(raw json.RawMessage) {
	var p struct {
		Width  float64 `json:"width"`
		Height float64 `json:"height"`
	}
	if b.opts.SizeChanged != nil && params(raw, &p) == nil && b.now() != phaseNew {
		b.opts.SizeChanged(min(max(p.Width, 0), maxLength), min(max(p.Height, 0), maxLength))
	}
}

func (b *Bridge) logged(ctx context.Context, raw json.RawMessage) {
	var p struct {
		Level mcp.LogLevel    `json:"level"`
		Data  json.RawMessage `json:"data"`
	}
	if params(raw, &p) != nil || b.now() == phaseNew {
		return
	}
	if !slices.Contains(levels, p.Level) {
		p.Level = mcp.LevelInfo
	}
	if b.opts.Log != nil {
		b.opts.Log(ctx, p.Level, p.Data)
		return
	}
	if b.log.Enabled(ctx, slog.LevelDebug) {
		const shown = 4 << 10
		b.log.DebugContext(ctx, "apps: log of a page", "level", p.Level, "data", fmt.Sprintf("%.*q", shown, []byte(p.Data)))
	}
}

var levels = []mcp.LogLevel{mcp.LevelDebug, mcp.LevelInfo, mcp.LevelNotice, mcp.LevelWarning, mcp.LevelError,
	mcp.LevelCritical, mcp.LevelAlert, mcp.LevelEmergency}

// answered takes the page's answer to a request of the host's.
func (b *Bridge) answered(m message) {
	var id string
	if jsonv2.Unmarshal(m.ID, &id) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if done, ok := b.answers[id]; ok {
		delete(b.answers, id)
		close(done)
	}
}

// errOrder is a host's mistake: it tells a page things in an order that the specification has not.
var errOrder = errors.New("apps: a page is told a tool's arguments once, then its result once, or that it was cancelled")

// ToolInput tells the page the arguments of the call that it shows, once. What a page is told waits until the page is
// ready. args encodes to a JSON object, or is nil for none.
//
// Spec: SEP-1865, ui/notifications/tool-input.
func (b *Bridge) ToolInput(ctx context.Context, args json.RawMessage) error {
	return b.tell(ctx, "ui/notifications/tool-input", arguments(args), func() error {
		if b.input || b.result {
			return errOrder
		}
		b.input = true
		return nil
	})
}

// ToolInputPartial tells the page the arguments as far as the model has written them, closed to be JSON. It may be called
// often, before ToolInput; what a page is not ready for is left out.
//
// Spec: SEP-1865, ui/notifications/tool-input-partial.
func (b *Bridge) ToolInputPartial(ctx context.Context, args json.RawMessage) error {
	if b.now() != phaseReady {
		return nil
	}
	return b.tell(ctx, "ui/notifications/tool-input-partial", arguments(args), func() error {
		if b.input || b.result {
			return errOrder
		}
		return nil
	})
}

type toolArguments struct {
	Arguments json.RawMessage `json:"arguments"`
}

func arguments(args json.RawMessage) *toolArguments {
	if args == nil {
		args = empty
	}
	return &toolArguments{args}
}

// ToolResult tells the page the result of the call that it shows, once, after [Bridge.ToolInput].
//
// Spec: SEP-1865, ui/notifications/tool-result.
func (b *Bridge) ToolResult(ctx context.Context, r *mcp.ToolResult) error {
	raw, err := encodeResult(r)
	if err != nil {
		return err
	}
	return b.tell(ctx, "ui/notifications/tool-result", raw, func() error {
		if !b.input || b.result {
			return errOrder
		}
		b.result = true
		return nil
	})
}

// ToolCancelled tells the page that the call will have no result. The reason may be empty.
//
// Spec: SEP-1865, ui/notifications/tool-cancelled.
func (b *Bridge) ToolCancelled(ctx context.Context, reason string) error {
	return b.tell(ctx, "ui/notifications/tool-cancelled", &because{reason}, func() error {
		if b.result {
			return errOrder
		}
		b.result = true
		return nil
	})
}

type because struct {
	Reason string `json:"reason"`
}

// ContextChanged tells the page what has changed around it; what is zero in c stays as it was. It is an error to show the
// page in a mode that it does not have.
//
// Spec: SEP-1865, ui/notifications/host-context-changed, Display Modes.
func (b *Bridge) ContextChanged(ctx context.Context, c *Context) error {
	return b.tell(ctx, "ui/notifications/host-context-changed", c, func() error {
		if c.DisplayMode == "" {
			return nil
		}
		if b.phase != phaseNew && !b.has(c.DisplayMode) {
			return fmt.Errorf("apps: the page cannot be shown as %q, only as %q", c.DisplayMode, b.modes)
		}
		b.context.DisplayMode = c.DisplayMode
		return nil
	})
}

// tell sends a notification, now or when the page is ready. step is called with mu held, and may refuse.
func (b *Bridge) tell(ctx context.Context, method string, v any, step func() error) error {
	raw, err := notification(method, v)
	if err != nil {
		return err
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	b.mu.Lock()
	if b.unloaded {
		err = errUnloaded
	} else {
		err = step()
	}
	ready := b.phase == phaseReady
	if err == nil && !ready {
		b.waiting = append(b.waiting, raw)
	}
	b.mu.Unlock()
	if err != nil || !ready {
		return err
	}
	return b.opts.Send(ctx, raw)
}

// errUnloaded is why nothing goes through any more. To tell such a page things is a host's mistake.
var errUnloaded = errors.New("apps: the page has been torn down")

// Teardown has the page put its things away, and waits until it has or ctx ends; the host removes the frame then. From the
// call on the bridge lets nothing through, and what the page has asked for is ended: consent that comes later has no
// effect. A page that never was ready is not asked.
//
// Spec: SEP-1865, ui/resource-teardown.
func (b *Bridge) Teardown(ctx context.Context, reason string) error {
	b.mu.Lock()
	ready := b.phase == phaseReady && !b.unloaded
	b.unloaded = true
	b.waiting = nil
	b.lastID++
	id := "host-" + strconv.Itoa(b.lastID)
	done := make(chan struct{})
	b.answers[id] = done
	for _, end := range b.calls {
		end(errUnloaded)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.answers, id)
	}()
	if !ready {
		return nil
	}
	raw, err := jsonv2.Marshal(&struct {
		JSONRPC string   `json:"jsonrpc"`
		ID      string   `json:"id"`
		Method  string   `json:"method"`
		Params  *because `json:"params"`
	}{"2.0", id, "ui/resource-teardown", &because{reason}})
	if err != nil {
		return err
	}
	b.sending.Lock()
	err = b.opts.Send(ctx, raw)
	b.sending.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// notification encodes a notification.
func notification(method string, v any) (json.RawMessage, error) {
	return jsonv2.Marshal(&struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, v}, jsonv2.Deterministic(true))
}
