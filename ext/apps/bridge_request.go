package apps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

var empty = json.RawMessage("{}")

type requestParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	URI       string          `json:"uri"`
	URL       string          `json:"url"`
	Role      string          `json:"role"`
	Mode      DisplayMode     `json:"mode"`
	ModelContext
}

func (b *Bridge) request(ctx context.Context, m message) (json.RawMessage, error) {
	switch m.Method {
	case "ping":
		return empty, nil
	case "ui/initialize":
		return b.initialize(m.Params)
	}
	if b.currentPhase() == phaseNew {
		return nil, mcp.Errorf(mcp.CodeInvalidRequest, "want ui/initialize first")
	}
	supported, known := map[string]bool{
		"tools/call":              b.opts.AllowTool != nil,
		"resources/read":          b.opts.AllowRead != nil,
		"ui/open-link":            b.opts.OpenLink != nil,
		"ui/message":              b.opts.Message != nil,
		"ui/update-model-context": b.opts.UpdateModelContext != nil,
		"ui/request-display-mode": true,
	}[m.Method]
	switch {
	case !known:
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %.128q", m.Method)
	case !supported:
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "the host does not support %s", m.Method)
	}
	var p requestParams
	if err := params(m.Params, &p); err != nil {
		return nil, err
	}
	switch m.Method {
	case "tools/call":
		return b.callTool(ctx, p)
	case "resources/read":
		return b.readResource(ctx, p)
	case "ui/open-link":
		return empty, b.openLink(ctx, p)
	case "ui/message":
		return empty, b.message(ctx, p)
	case "ui/update-model-context":
		return empty, b.updateModelContext(ctx, p)
	}
	return b.requestDisplayMode(ctx, p)
}

func (b *Bridge) currentPhase() phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unloaded {
		return phaseNew // requests are refused
	}
	return b.phase
}

// refusal returns the error for the page if a function of the host returned err.
func refusal(err error) error {
	var e *mcp.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return errors.Join(errRefused, err) // err is logged only
}

func params(raw json.RawMessage, v any) error {
	if raw == nil {
		raw = empty
	}
	if jsonv2.Unmarshal(raw, v) != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "params has a member of the wrong type")
	}
	return nil
}

type hostCapabilities struct {
	OpenLinks       *struct{} `json:"openLinks,omitzero"`
	ServerTools     *struct{} `json:"serverTools,omitzero"`
	ServerResources *struct{} `json:"serverResources,omitzero"`
	Logging         *struct{} `json:"logging,omitzero"`
	Sandbox         granted   `json:"sandbox"`
}

type granted struct {
	Permissions Permissions `json:"permissions,omitzero"`
	CSP         CSP         `json:"csp,omitzero"`
}

func capability(supported bool) *struct{} {
	if supported {
		return &struct{}{}
	}
	return nil
}

// Spec: SEP-1865, Lifecycle.
func (b *Bridge) initialize(raw json.RawMessage) (json.RawMessage, error) {
	var p struct {
		App struct {
			Modes []DisplayMode `json:"availableDisplayModes"`
		} `json:"appCapabilities"`
	}
	if err := params(raw, &p); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unloaded {
		return nil, errRefused
	}
	b.modes = nil
	if p.App.Modes != nil {
		known := []DisplayMode{DisplayInline, DisplayFullscreen, DisplayPiP}
		b.modes = slices.DeleteFunc(known, func(m DisplayMode) bool { return !slices.Contains(p.App.Modes, m) })
	}
	if b.phase == phaseNew {
		b.phase = phaseInitialized
	}
	return jsonv2.Marshal(&struct {
		Version      string             `json:"protocolVersion"`
		Info         mcp.Implementation `json:"hostInfo"`
		Capabilities hostCapabilities   `json:"hostCapabilities"`
		Context      Context            `json:"hostContext"`
	}{
		Revision, b.opts.Info,
		hostCapabilities{
			OpenLinks:       capability(b.opts.OpenLink != nil),
			ServerTools:     capability(b.opts.AllowTool != nil),
			ServerResources: capability(b.opts.AllowRead != nil),
			Logging:         capability(true),
			Sandbox:         granted{b.page.Frame.Permissions, b.page.Frame.CSP},
		}, b.context,
	})
}

// callTool calls a tool of the page's server, if views may call the tool and the host allows it.
// Only the name and the arguments come from the page. Spec: SEP-1865, Visibility.
func (b *Bridge) callTool(ctx context.Context, p requestParams) (json.RawMessage, error) {
	if p.Arguments == nil {
		p.Arguments = empty
	}
	if p.Name == "" || p.Arguments[0] != '{' {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "want name, and arguments that are an object")
	}
	t, err := b.host.tool(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	if t == nil || !forApp(t) {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "unknown tool, or not for views: %.128q", p.Name)
	}
	if err := cmp.Or(refusal(b.opts.AllowTool(ctx, t, p.Arguments)), checkUnloaded(ctx)); err != nil {
		return nil, err
	}
	res, err := b.host.client.CallTool(ctx, p.Name, p.Arguments)
	if err != nil {
		return nil, err
	}
	return encodeResult(res)
}

func forApp(t *mcp.Tool) bool {
	u, err := ToolUIOf(t)
	return err == nil && u.ForApp()
}

func (b *Bridge) readResource(ctx context.Context, p requestParams) (json.RawMessage, error) {
	if p.URI == "" || len(p.URI) > maxURI {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "want uri, with 1 to %d bytes", maxURI)
	}
	if err := cmp.Or(refusal(b.opts.AllowRead(ctx, p.URI)), checkUnloaded(ctx)); err != nil {
		return nil, err
	}
	res, err := b.host.client.ReadResource(ctx, p.URI)
	if err != nil {
		return nil, err
	}
	return encodeResult(res)
}

// encodeResult returns a server's result without the members that are for clients only.
func encodeResult(res mcp.Result) (json.RawMessage, error) {
	raw, err := (&mcp.Request{}).EncodeResult(res)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := jsonv2.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	for _, name := range []string{"resultType", "ttlMs", "cacheScope"} {
		delete(members, name)
	}
	return jsonv2.Marshal(members, jsonv2.Deterministic(true))
}

// Spec: SEP-1865, ui/open-link.
func (b *Bridge) openLink(ctx context.Context, p requestParams) error {
	link, err := checkLink(p.URL)
	if err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "invalid url: %s", err)
	}
	return refusal(b.opts.OpenLink(ctx, link))
}

// message adds a text to the conversation. In the specification content is one block; the pages of
// the reference implementation send an array.
func (b *Bridge) message(ctx context.Context, p requestParams) error {
	type block struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	blocks := make([]block, 1)
	err := jsonv2.Unmarshal(p.Content, &blocks[0])
	if len(p.Content) > 0 && p.Content[0] == '[' {
		err = jsonv2.Unmarshal(p.Content, &blocks)
	}
	var texts []string
	for _, c := range blocks {
		if c.Type != "text" {
			err = errors.New("not a text")
		}
		texts = append(texts, c.Text)
	}
	text := strings.Join(texts, "\n")
	if err != nil || p.Role != "user" || text == "" || len(text) > maxText {
		return mcp.Errorf(mcp.CodeInvalidParams, `want the role "user" and a text of up to %d bytes`, maxText)
	}
	return refusal(b.opts.Message(ctx, text))
}

// Spec: SEP-1865, ui/update-model-context.
func (b *Bridge) updateModelContext(ctx context.Context, p requestParams) error {
	if p.Content != nil && p.Content[0] != '[' || p.StructuredContent != nil && p.StructuredContent[0] != '{' {
		return mcp.Errorf(mcp.CodeInvalidParams, "want an array as content, and an object as structuredContent")
	}
	return refusal(b.opts.UpdateModelContext(ctx, p.ModelContext))
}

// requestDisplayMode changes the display mode, if page and host support the new mode.
func (b *Bridge) requestDisplayMode(ctx context.Context, p requestParams) (json.RawMessage, error) {
	type mode struct {
		Mode DisplayMode `json:"mode"`
	}
	b.mu.Lock()
	current := cmp.Or(b.context.DisplayMode, DisplayInline)
	supported := b.opts.RequestDisplayMode != nil && slices.Contains(b.context.AvailableDisplayModes, p.Mode) &&
		b.supportsMode(p.Mode)
	b.mu.Unlock()
	if !supported || p.Mode == current {
		return jsonv2.Marshal(&mode{current})
	}
	current, err := b.opts.RequestDisplayMode(ctx, p.Mode)
	if err != nil {
		return nil, refusal(err)
	}
	b.mu.Lock()
	b.context.DisplayMode = current
	b.mu.Unlock()
	return jsonv2.Marshal(&mode{current})
}

// supportsMode reports whether the page supports a display mode. The caller holds mu.
func (b *Bridge) supportsMode(m DisplayMode) bool {
	return b.modes == nil || slices.Contains(b.modes, m)
}
