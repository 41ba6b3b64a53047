package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

func (b *Bridge) handleNotification(ctx context.Context, m message) {
	var err error
	switch m.Method {
	case "ui/notifications/initialized":
		err = b.setReady(ctx)
	case "ui/notifications/sandbox-proxy-ready":
		err = b.sendDocument(ctx)
	case "notifications/cancelled":
		b.cancelCall(m.Params)
	case "notifications/tools/list_changed":
		b.appToolsChanged()
	case "ui/notifications/request-teardown":
		if b.opts.RequestTeardown != nil && b.currentPhase() != phaseNew {
			b.opts.RequestTeardown()
		}
	case "ui/notifications/size-changed":
		b.sizeChanged(m.Params)
	case "notifications/message":
		b.logMessage(ctx, m.Params)
	}
	if err != nil {
		b.log.WarnContext(ctx, "apps: a message could not be sent to a page", "error", err)
	}
}

// setReady sends the messages that were queued for the page. No notification is sent before. Spec:
// SEP-1865, Sandbox proxy, 6.
func (b *Bridge) setReady(ctx context.Context) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.mu.Lock()
	if b.phase != phaseInitialized || b.unloaded {
		b.mu.Unlock()
		return nil
	}
	b.phase = phaseReady
	queued := b.queued
	b.queued = nil
	b.mu.Unlock()
	for _, m := range queued {
		if err := b.opts.Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// sendDocument sends the document to the sandbox proxy of a host that is a web page.
func (b *Bridge) sendDocument(ctx context.Context) error {
	raw, err := notification("ui/notifications/sandbox-resource-ready", &struct {
		HTML    string `json:"html"`
		Sandbox string `json:"sandbox"`
		granted
	}{b.page.HTML, Sandbox, granted{b.page.Frame.Permissions, b.page.Frame.CSP}})
	if err != nil {
		return err
	}
	b.mu.Lock()
	again := b.loaded || b.unloaded
	b.loaded = true
	b.mu.Unlock()
	if again {
		return errors.New("the document has been sent already")
	}
	return b.send(ctx, raw)
}

// cancelCall cancels the request that the page identifies. Ids are compared as JSON text, because
// the page wrote both ids. Spec: basic/utilities/cancellation (2025-11-25).
func (b *Bridge) cancelCall(raw json.RawMessage) {
	var p cancelled
	if params(raw, &p) != nil || p.RequestID == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for end, id := range b.calls {
		if id == string(p.RequestID) {
			(*end)(errCancelled)
		}
	}
}

// cancelled contains the params of notifications/cancelled in both directions. The bridge ignores
// the reason that a page states, and does not send errors of the host to a page.
type cancelled struct {
	RequestID json.RawMessage `json:"requestId"`
}

// withdraw tells the page that the host no longer waits for a response. ctx has already ended.
func (b *Bridge) withdraw(ctx context.Context, id json.RawMessage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	raw, err := notification("notifications/cancelled", &cancelled{id})
	if err == nil {
		err = b.send(ctx, raw)
	}
	if err != nil {
		b.log.WarnContext(ctx, "apps: a cancellation could not be sent to a page", "error", err)
	}
}

func (b *Bridge) appToolsChanged() {
	b.mu.Lock()
	isNew := b.app.Tools && !b.unloaded && !b.appNews
	b.appNews = b.appNews || isNew
	b.mu.Unlock()
	if isNew && b.opts.AppToolsChanged != nil {
		b.opts.AppToolsChanged()
	}
}

func (b *Bridge) sizeChanged(raw json.RawMessage) {
	var p struct {
		Width  float64 `json:"width"`
		Height float64 `json:"height"`
	}
	if b.opts.SizeChanged != nil && params(raw, &p) == nil && b.currentPhase() != phaseNew {
		b.opts.SizeChanged(min(max(p.Width, 0), maxLength), min(max(p.Height, 0), maxLength))
	}
}

func (b *Bridge) logMessage(ctx context.Context, raw json.RawMessage) {
	var p struct {
		Level mcp.LoggingLevel `json:"level"`
		Data  json.RawMessage  `json:"data"`
	}
	if params(raw, &p) != nil || b.currentPhase() == phaseNew {
		return
	}
	if _, known := driver.LogSeverity(string(p.Level)); !known {
		p.Level = "info"
	}
	if b.opts.Log != nil {
		b.opts.Log(ctx, p.Level, p.Data)
		return
	}
	if b.log.Enabled(ctx, slog.LevelDebug) {
		const shown = 4 << 10
		b.log.DebugContext(ctx, "apps: log message from a page", "level", p.Level, "data",
			fmt.Sprintf("%.*q", shown, []byte(p.Data)))
	}
}

func (b *Bridge) handleResponse(m message) {
	var id string
	if jsonv2.Unmarshal(m.ID, &id) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if response, ok := b.pending[id]; ok {
		delete(b.pending, id)
		response <- m // buffered
	}
}

// errOrder is the error for calls of the host in the wrong order.
var errOrder = errors.New("apps: want ToolInput once, and then ToolResult or ToolCancelled once")

// ToolInput sends the page the arguments of the tool call that it shows. The host calls it once.
// Like all notifications it is queued until the page is ready. args is a JSON object, or nil for
// none.
//
// Spec: SEP-1865, ui/notifications/tool-input.
func (b *Bridge) ToolInput(ctx context.Context, args json.RawMessage) error {
	return b.notify(ctx, "ui/notifications/tool-input", arguments(args), b.show(shownNothing, shownNothing, shownInput))
}

// ToolInputPartial sends the page the arguments as far as the model wrote them, completed to
// valid JSON. It may be called several times, before ToolInput. Partial arguments are not queued:
// they are dropped if the page is not ready.
//
// Spec: SEP-1865, ui/notifications/tool-input-partial.
func (b *Bridge) ToolInputPartial(ctx context.Context, args json.RawMessage) error {
	if b.currentPhase() != phaseReady {
		return nil
	}
	return b.notify(ctx, "ui/notifications/tool-input-partial", arguments(args),
		b.show(shownNothing, shownNothing, shownNothing))
}

func arguments(args json.RawMessage) map[string]json.RawMessage {
	if args == nil {
		args = empty
	}
	return map[string]json.RawMessage{"arguments": args}
}

// ToolResult sends the page the result of the tool call that it shows. The host calls it once,
// after [Bridge.ToolInput].
//
// Spec: SEP-1865, ui/notifications/tool-result.
func (b *Bridge) ToolResult(ctx context.Context, r *mcp.CallToolResult) error {
	raw, err := encodeResult(r)
	if err != nil {
		return err
	}
	return b.notify(ctx, "ui/notifications/tool-result", raw, b.show(shownInput, shownInput, shownResult))
}

// ToolCancelled notifies the page that the call ends without a result. The reason may be empty.
//
// Spec: SEP-1865, ui/notifications/tool-cancelled.
func (b *Bridge) ToolCancelled(ctx context.Context, reason string) error {
	return b.notify(ctx, "ui/notifications/tool-cancelled", &reasonParams{reason},
		b.show(shownNothing, shownInput, shownResult))
}

// show returns a check for notify, which requires that b.shown is from least to most, and then sets
// it to next.
func (b *Bridge) show(least, most, next shown) func() error {
	return func() error {
		if b.shown < least || b.shown > most {
			return errOrder
		}
		b.shown = next
		return nil
	}
}

type reasonParams struct {
	Reason string `json:"reason"`
}

// ContextChanged sends the page the changes of its Context; zero fields of c are unchanged. It
// returns an error for a display mode that the page does not support.
//
// Spec: SEP-1865, ui/notifications/host-context-changed, Display Modes.
func (b *Bridge) ContextChanged(ctx context.Context, c *Context) error {
	return b.notify(ctx, "ui/notifications/host-context-changed", c, func() error {
		if c.DisplayMode == "" {
			return nil
		}
		if b.phase != phaseNew && !b.supportsMode(c.DisplayMode) {
			return fmt.Errorf("apps: the page does not support the display mode %q, only %q", c.DisplayMode, b.modes)
		}
		b.context.DisplayMode = c.DisplayMode
		return nil
	})
}

// ToolsChanged notifies the page that the tools of its server changed.
//
// Spec: SEP-1865, Standard MCP Messages.
func (b *Bridge) ToolsChanged(ctx context.Context) error {
	return b.notify(ctx, "notifications/tools/list_changed", nil, func() error { return nil })
}

// notify sends a notification, now or when the page is ready. check is called with mu held; its
// error is returned.
func (b *Bridge) notify(ctx context.Context, method string, v any, check func() error) error {
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
		err = check()
	}
	ready := b.phase == phaseReady
	if err == nil && !ready {
		b.queued = append(b.queued, raw)
	}
	b.mu.Unlock()
	if err != nil || !ready {
		return err
	}
	return b.opts.Send(ctx, raw)
}

// send sends a message after the messages before it.
func (b *Bridge) send(ctx context.Context, raw json.RawMessage) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.opts.Send(ctx, raw)
}

var errUnloaded = errors.New("apps: the page has been torn down")

// Teardown asks the page to save its state, and waits until it answered or ctx ends. Then the
// host removes the frame. As soon as Teardown is called, the bridge refuses all requests of the
// page and cancels those that are being handled; if the user consents later, it has no effect. A
// page that is not ready is not asked.
//
// Spec: SEP-1865, ui/resource-teardown.
func (b *Bridge) Teardown(ctx context.Context, reason string) error {
	b.mu.Lock()
	ready := b.phase == phaseReady && !b.unloaded
	if ready { // a page that is not ready was not asked anything
		for _, response := range b.pending {
			close(response)
		}
		clear(b.pending)
	}
	b.unloaded, b.queued = true, nil
	for end := range b.calls {
		(*end)(errUnloaded)
	}
	b.mu.Unlock()
	if !ready {
		return nil
	}
	_, err := b.ask(ctx, methodTeardown, &reasonParams{reason})
	return err
}

func notification(method string, v any) (json.RawMessage, error) {
	return jsonv2.Marshal(&outgoing{JSONRPC: "2.0", Method: method, Params: v}, jsonv2.Deterministic(true))
}
