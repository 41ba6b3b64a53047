package apps

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// empty is the result of what has none.
var empty = stdjson.RawMessage("{}")

// request answers one request of the page.
func (b *Bridge) request(ctx context.Context, m message) (stdjson.RawMessage, error) {
	switch m.Method {
	case "ping":
		return empty, nil
	case "ui/initialize":
		return b.initialize(m.Params)
	}
	if b.now() == phaseNew {
		return nil, mcp.Errorf(mcp.CodeInvalidRequest, "ui/initialize comes first")
	}
	switch m.Method {
	case "tools/call":
		return b.callTool(ctx, m.Params)
	case "resources/read":
		return b.readResource(ctx, m.Params)
	case "ui/open-link":
		return empty, b.openLink(ctx, m.Params)
	case "ui/message":
		return empty, b.message(ctx, m.Params)
	case "ui/update-model-context":
		return empty, b.updateModelContext(ctx, m.Params)
	case "ui/request-display-mode":
		return b.requestDisplayMode(ctx, m.Params)
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %.128q", m.Method)
}

// notForPages refuses what the host has no function for. To the page it is a method like any that is not there.
func notForPages(method string) error {
	return mcp.Errorf(mcp.CodeMethodNotFound, "this host does not let pages use %s", method)
}

func (b *Bridge) now() phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unloaded {
		return phaseNew // what comes from a page that is gone begins nothing
	}
	return b.phase
}

// refusal is what the page learns of a host's function that returned an error.
func refusal(err error) error {
	var e *mcp.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return errors.Join(errRefused, err) // the second is for the log
}

// params reads the params of a request.
func params(raw stdjson.RawMessage, v any) error {
	if raw == nil {
		raw = empty
	}
	if json.Unmarshal(raw, v) != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "the params have a member of the wrong type")
	}
	return nil
}

// hostCapabilities is what the host declares. Spec: SEP-1865, Host Capabilities.
type hostCapabilities struct {
	OpenLinks       *struct{} `json:"openLinks,omitzero"`
	ServerTools     *struct{} `json:"serverTools,omitzero"`
	ServerResources *struct{} `json:"serverResources,omitzero"`
	Logging         *struct{} `json:"logging,omitzero"`
	Sandbox         sandboxed `json:"sandbox"`
}

// sandboxed is what a page is granted of what it asked for.
type sandboxed struct {
	Permissions Permissions `json:"permissions,omitzero"`
	CSP         CSP         `json:"csp,omitzero"`
}

func declared(can bool) *struct{} {
	if can {
		return &struct{}{}
	}
	return nil
}

// initialize answers the page's first request. Spec: SEP-1865, Lifecycle.
func (b *Bridge) initialize(raw stdjson.RawMessage) (stdjson.RawMessage, error) {
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
		b.modes = slices.DeleteFunc([]DisplayMode{DisplayInline, DisplayFullscreen, DisplayPiP}, func(m DisplayMode) bool {
			return !slices.Contains(p.App.Modes, m)
		})
	}
	if b.phase == phaseNew {
		b.phase = phaseAnswered
	}
	return json.Marshal(&struct {
		Version      string             `json:"protocolVersion"`
		Info         mcp.Implementation `json:"hostInfo"`
		Capabilities hostCapabilities   `json:"hostCapabilities"`
		Context      Context            `json:"hostContext"`
	}{
		Revision, b.opts.Info,
		hostCapabilities{
			OpenLinks:       declared(b.opts.OpenLink != nil),
			ServerTools:     declared(b.opts.AllowTool != nil),
			ServerResources: declared(b.opts.AllowRead != nil),
			Logging:         declared(true),
			Sandbox:         sandboxed{b.page.Frame.Permissions, b.page.Frame.CSP},
		}, b.context,
	})
}

// callTool calls a tool of the page's own server, if the tool is for views and the host allows it. Nothing but its name and
// arguments comes from the page.
//
// Spec: SEP-1865, Visibility.
func (b *Bridge) callTool(ctx context.Context, raw stdjson.RawMessage) (stdjson.RawMessage, error) {
	if b.opts.AllowTool == nil {
		return nil, notForPages("tools/call")
	}
	var p struct {
		Name      string             `json:"name"`
		Arguments stdjson.RawMessage `json:"arguments"`
	}
	if err := params(raw, &p); err != nil {
		return nil, err
	}
	if p.Arguments == nil {
		p.Arguments = empty
	}
	if p.Name == "" || p.Arguments[0] != '{' {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "want the name of a tool, and arguments that are an object")
	}
	t, err := b.host.tool(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	if !forApp(t) {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "there is no tool %.128q for views", p.Name)
	}
	if err := b.opts.AllowTool(ctx, t, p.Arguments); err != nil {
		return nil, refusal(err)
	}
	if err := stillThere(ctx); err != nil {
		return nil, err
	}
	res, err := b.host.client.CallTool(ctx, p.Name, p.Arguments)
	if err != nil {
		return nil, err
	}
	return encodeResult(res)
}

func forApp(t *mcp.Tool) bool {
	if t == nil {
		return false
	}
	u, err := ToolUIOf(t)
	return err == nil && u.ForApp()
}

// readResource reads a resource of the page's own server.
func (b *Bridge) readResource(ctx context.Context, raw stdjson.RawMessage) (stdjson.RawMessage, error) {
	if b.opts.AllowRead == nil {
		return nil, notForPages("resources/read")
	}
	var p struct {
		URI string `json:"uri"`
	}
	if err := params(raw, &p); err != nil {
		return nil, err
	}
	if p.URI == "" || len(p.URI) > maxURI {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "want the uri of a resource, of 1 to %d characters", maxURI)
	}
	if err := b.opts.AllowRead(ctx, p.URI); err != nil {
		return nil, refusal(err)
	}
	if err := stillThere(ctx); err != nil {
		return nil, err
	}
	res, err := b.host.client.ReadResource(ctx, p.URI)
	if err != nil {
		return nil, err
	}
	return encodeResult(res)
}

// encodeResult returns a server's result as pages know it: what only clients have to know is not in it.
func encodeResult(res mcp.Result) (stdjson.RawMessage, error) {
	raw, err := (&mcp.Request{}).EncodeResult(res)
	if err != nil {
		return nil, err
	}
	var members map[string]stdjson.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	for _, name := range []string{"resultType", "ttlMs", "cacheScope"} {
		delete(members, name)
	}
	return json.Marshal(members, json.Deterministic(true))
}

// openLink has the host open a page of the web. Spec: SEP-1865, ui/open-link.
func (b *Bridge) openLink(ctx context.Context, raw stdjson.RawMessage) error {
	if b.opts.OpenLink == nil {
		return notForPages("ui/open-link")
	}
	var p struct {
		URL string `json:"url"`
	}
	if err := params(raw, &p); err != nil {
		return err
	}
	link, err := checkLink(p.URL)
	if err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "want an absolute URL of the web that shows where it leads: %s", err)
	}
	return refusal(b.opts.OpenLink(ctx, link))
}

// message has the host put a text into the conversation. The specification has one block of content, the pages of its
// authors send an array.
//
// Spec: SEP-1865, ui/message.
func (b *Bridge) message(ctx context.Context, raw stdjson.RawMessage) error {
	if b.opts.Message == nil {
		return notForPages("ui/message")
	}
	type block struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	var p struct {
		Role    string             `json:"role"`
		Content stdjson.RawMessage `json:"content"`
	}
	if err := params(raw, &p); err != nil {
		return err
	}
	blocks := make([]block, 1)
	err := json.Unmarshal(p.Content, &blocks[0])
	if len(p.Content) > 0 && p.Content[0] == '[' {
		err = json.Unmarshal(p.Content, &blocks)
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

// updateModelContext has the host tell the model about the page. Spec: SEP-1865, ui/update-model-context.
func (b *Bridge) updateModelContext(ctx context.Context, raw stdjson.RawMessage) error {
	if b.opts.UpdateModelContext == nil {
		return notForPages("ui/update-model-context")
	}
	var p ModelContext
	if err := params(raw, &p); err != nil {
		return err
	}
	if p.Content != nil && p.Content[0] != '[' || p.StructuredContent != nil && p.StructuredContent[0] != '{' {
		return mcp.Errorf(mcp.CodeInvalidParams, "want content that is an array, and structuredContent that is an object")
	}
	return refusal(b.opts.UpdateModelContext(ctx, p))
}

// requestDisplayMode shows the page in another way, if both sides have it. Spec: SEP-1865, Display Modes.
func (b *Bridge) requestDisplayMode(ctx context.Context, raw stdjson.RawMessage) (stdjson.RawMessage, error) {
	type mode struct {
		Mode DisplayMode `json:"mode"`
	}
	var p mode
	if err := params(raw, &p); err != nil {
		return nil, err
	}
	b.mu.Lock()
	is := b.context.DisplayMode
	can := b.opts.RequestDisplayMode != nil && slices.Contains(b.context.AvailableDisplayModes, p.Mode) && b.has(p.Mode)
	b.mu.Unlock()
	if is == "" {
		is = DisplayInline
	}
	if !can || p.Mode == is {
		return json.Marshal(&mode{is})
	}
	is, err := b.opts.RequestDisplayMode(ctx, p.Mode)
	if err != nil {
		return nil, refusal(err)
	}
	b.mu.Lock()
	b.context.DisplayMode = is
	b.mu.Unlock()
	return json.Marshal(&mode{is})
}

// has reports whether the page can be shown in a mode. It is called with mu held.
func (b *Bridge) has(m DisplayMode) bool { return b.modes == nil || slices.Contains(b.modes, m) }
