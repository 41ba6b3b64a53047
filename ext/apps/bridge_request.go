package apps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	Contents  json.RawMessage `json:"contents"`
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
		"tools/list":              b.opts.AllowTool != nil,
		"resources/read":          b.opts.AllowRead != nil,
		"sampling/createMessage":  b.opts.Sample != nil,
		"ui/download-file":        b.opts.DownloadFile != nil,
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
	if m.Method == "sampling/createMessage" {
		return b.sample(ctx, m.Params)
	}
	var p requestParams
	if err := params(m.Params, &p); err != nil {
		return nil, err
	}
	switch m.Method {
	case "tools/call":
		return b.callTool(ctx, p)
	case "tools/list":
		return b.listTools(ctx)
	case "resources/read":
		return b.readResource(ctx, p)
	case "ui/download-file":
		return empty, b.downloadFile(ctx, p)
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

type granted struct {
	Permissions Permissions `json:"permissions,omitzero"`
	CSP         CSP         `json:"csp,omitzero"`
}

// capabilities returns the host's capabilities as objects that are empty or contain flags.
func (b *Bridge) capabilities() map[string]any {
	type parts map[string]any
	all := map[string]any{"logging": parts{}, "sandbox": granted{b.page.Frame.Permissions, b.page.Frame.CSP}}
	declare := func(supported bool, name string, value any) {
		if supported {
			all[name] = value
		}
	}
	o := &b.opts
	declare(o.OpenLink != nil, "openLinks", parts{})
	declare(o.DownloadFile != nil, "downloadFile", parts{})
	declare(o.AllowTool != nil, "serverTools", parts{})
	declare(o.AllowTool != nil && o.NotifiesTools, "serverTools", parts{"listChanged": true})
	declare(o.AllowRead != nil, "serverResources", parts{})
	declare(o.Message != nil, "message", parts{"text": parts{}})
	declare(o.UpdateModelContext != nil, "updateModelContext", parts{"text": parts{}, "image": parts{},
		"audio": parts{}, "resource": parts{}, "resourceLink": parts{}, "structuredContent": parts{}})
	declare(o.Sample != nil, "sampling", parts{})
	declare(o.Sample != nil && o.SampleTools, "sampling", parts{"tools": parts{}})
	return all
}

// Spec: SEP-1865, Lifecycle.
func (b *Bridge) initialize(raw json.RawMessage) (json.RawMessage, error) {
	var p struct {
		App struct {
			Modes []DisplayMode `json:"availableDisplayModes"`
			Tools *struct{}     `json:"tools"`
		} `json:"appCapabilities"`
		Info App `json:"appInfo"`
	}
	if err := params(raw, &p); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unloaded {
		return nil, errRefused
	}
	b.app = App{shorten(p.Info.Name), shorten(p.Info.Version), p.App.Tools != nil}
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
		Capabilities map[string]any     `json:"hostCapabilities"`
		Context      Context            `json:"hostContext"`
	}{Revision, b.opts.Info, b.capabilities(), b.context}, jsonv2.Deterministic(true))
}

func shorten(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxAppText)], "") }

// listTools lists the tools that the page may call.
func (b *Bridge) listTools(ctx context.Context) (json.RawMessage, error) {
	if _, err := b.host.tool(ctx, ""); err != nil { // lists the tools, unless they are known
		return nil, err
	}
	res := &mcp.ListToolsResult{Tools: []*mcp.Tool{}}
	b.host.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(b.host.tools)) {
		if t := b.host.tools[name]; forApp(t) {
			res.Tools = append(res.Tools, t)
		}
	}
	b.host.mu.Unlock()
	return encodeResult(res)
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
	if err := cmp.Or(refusal(b.opts.AllowTool(ctx, t, p.Arguments)), checkEnded(ctx)); err != nil {
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
	if err := cmp.Or(refusal(b.opts.AllowRead(ctx, p.URI)), checkEnded(ctx)); err != nil {
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

// sample continues a conversation. Spec: SEP-1865, Standard MCP Messages.
func (b *Bridge) sample(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	var p mcp.CreateMessageParams
	if err := params(raw, &p); err != nil {
		return nil, err
	}
	if err := b.checkSample(&p); err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid conversation: %s", err)
	}
	p.Meta = nil // for the host, not for the model
	if !b.sampling.TryLock() {
		return nil, mcp.Errorf(mcp.CodeBusy, "another conversation is in progress")
	}
	defer b.sampling.Unlock()
	res, err := b.opts.Sample(ctx, &p)
	if err != nil {
		return nil, refusal(err)
	}
	return jsonv2.Marshal(res)
}

// checkSample returns an error for params that exceed the limits or capabilities of the host.
func (b *Bridge) checkSample(p *mcp.CreateMessageParams) error {
	usesTools := len(p.Tools) > 0 || p.ToolChoice != nil
	for _, m := range p.Messages {
		for _, c := range m.Content {
			switch c.(type) {
			case *mcp.ToolUseContent, *mcp.ToolResultContent:
				usesTools = true
			}
		}
	}
	switch n := len(p.Messages); {
	case n == 0 || n > maxMessages || len(p.Tools) > maxAppTools:
		return fmt.Errorf("want 1 to %d messages, and at most %d tools", maxMessages, maxAppTools)
	case p.MaxTokens <= 0 || p.IncludeContext != "" && p.IncludeContext != "none":
		return errors.New("want a positive maxTokens, and none as includeContext")
	case usesTools && !b.opts.SampleTools:
		return errors.New("the host does not support tools")
	}
	return nil
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
