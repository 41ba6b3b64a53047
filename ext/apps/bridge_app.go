package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An App is the program in a page, as it describes itself.
//
// Spec: SEP-1865, App Capabilities.
type App struct {
	Name    string `json:"name"`    // untrusted, at most 128 bytes
	Version string `json:"version"` // untrusted, at most 128 bytes
	Tools   bool   `json:"-"`       // whether the page offers tools, see [Bridge.AppTools]
}

// Limits of the tools of a page. Spec: SEP-1865, App-Provided Tools Security.
const (
	maxAppTools = 50               // as the specification recommends
	maxAppPages = 8                // of a list, because pages may be empty
	appTimeout  = 30 * time.Second // for a response, as the specification recommends
	maxAppText  = 128              // the name and version of a page, and the name of a tool
	// cancelTimeout limits how long a caller waits until its cancellation is sent.
	cancelTimeout = time.Second
)

// App returns the description that the page sent in ui/initialize. The App is empty before
// ui/initialize.
func (b *Bridge) App() App {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.app
}

// AppTools lists the tools that the page offers the host, for example for its model. The host must
// name the page as their source, and forget the tools when the page is torn down. Names,
// descriptions and annotations are untrusted.
//
// Tools with an invalid name or schema, or with the name of another tool of the page or server, are
// dropped and logged. AppTools returns an error if the page offers no tools or more than 50 tools,
// is not ready, was torn down, or does not answer within 30 seconds.
//
// Spec: SEP-1865, App-Provided Tools.
func (b *Bridge) AppTools(ctx context.Context) (tools []*mcp.Tool, err error) {
	ctx, cancel := context.WithTimeout(ctx, appTimeout)
	defer cancel()
	b.mu.Lock()
	b.appNews = false
	b.mu.Unlock()
	byName, params := map[string]*mcp.Tool{}, map[string]string{}
	for range maxAppPages {
		var page struct {
			Tools []*mcp.Tool `json:"tools"`
			Next  string      `json:"nextCursor"`
		}
		if err := b.askApp(ctx, "tools/list", params, &page); err != nil {
			return nil, fmt.Errorf("apps: tools of the page: %w", err)
		}
		for _, t := range page.Tools {
			switch err := b.checkAppTool(t, byName); {
			case len(tools) == maxAppTools:
				return nil, fmt.Errorf("apps: the page offers more than %d tools", maxAppTools)
			case err != nil:
				b.log.WarnContext(ctx, "apps: tool of a page dropped", "error", err)
			default:
				byName[t.Name], tools = t, append(tools, t)
			}
		}
		if params["cursor"] = page.Next; page.Next == "" {
			break
		}
	}
	b.mu.Lock()
	b.appTools = byName
	b.mu.Unlock()
	b.log.InfoContext(ctx, "apps: tools of a page", "count", len(tools))
	return tools, nil
}

// checkAppTool returns an error for a tool that a page must not offer beside others.
func (b *Bridge) checkAppTool(t *mcp.Tool, others map[string]*mcp.Tool) error {
	if t == nil || t.Name == "" || len(t.Name) > maxAppText ||
		strings.ContainsFunc(t.Name, func(r rune) bool { return !isNameRune(r) && r != '_' && r != '.' }) {
		return errors.New("invalid name: want letters, digits, underscores, hyphens and periods")
	}
	if other, _ := b.host.known(t.Name); other != nil || others[t.Name] != nil {
		return fmt.Errorf("another tool has the name %q", t.Name)
	}
	if len(t.InputSchema) == 0 || t.InputSchema[0] != '{' {
		return fmt.Errorf("the input schema of %q is not an object", t.Name)
	}
	return errors.Join(jsonschema.CheckSize(t.InputSchema), jsonschema.CheckSize(t.OutputSchema))
}

// CallAppTool calls a tool that [Bridge.AppTools] listed, with the user's consent. args is a JSON
// object, or nil for none. The result is untrusted. CallAppTool returns an error if the page
// answers with an error, with a result that violates the output schema, or not within 30 seconds.
//
// Spec: SEP-1865, Requests (Host → App).
func (b *Bridge) CallAppTool(ctx context.Context, name string, args json.RawMessage) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, appTimeout)
	defer cancel()
	b.mu.Lock()
	t := b.appTools[name]
	b.mu.Unlock()
	if t == nil {
		return nil, fmt.Errorf("apps: the page has no tool %.128q: call AppTools to list its tools", name)
	}
	params, res := arguments(args), &mcp.CallToolResult{}
	params["name"] = strconv.AppendQuote(nil, name)
	err := b.askApp(ctx, "tools/call", params, res)
	if content, _ := res.StructuredContent.(json.RawMessage); err == nil && t.OutputSchema != nil && !res.IsError {
		var output *jsonschema.Schema
		if output, err = jsonschema.Compile(t.OutputSchema); err == nil {
			err = output.Validate(content)
		}
	}
	b.log.InfoContext(ctx, "apps: call of a tool of a page", "tool", name, "bytes", len(args), "error", err)
	if err != nil {
		return nil, fmt.Errorf("apps: tool %q of the page: %w", name, err)
	}
	return res, nil
}

// askApp sends a request to a page that offers tools, and decodes the result.
func (b *Bridge) askApp(ctx context.Context, method string, params, result any) error {
	if !b.App().Tools {
		return errors.New("the page offers no tools")
	}
	m, err := b.ask(ctx, method, params)
	switch {
	case err != nil:
		return err
	case m.Error != nil:
		return fmt.Errorf("the page answered with the error %.256q", m.Error)
	}
	return jsonv2.Unmarshal(m.Result, result)
}

const methodTeardown = "ui/resource-teardown" // the last request

// ask sends a request to a page that is ready, and returns the response.
func (b *Bridge) ask(ctx context.Context, method string, params any) (m message, err error) {
	response := make(chan message, 1) // closed by Teardown
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.phase != phaseReady:
		return m, errors.New("the page is not ready")
	case b.unloaded && method != methodTeardown:
		return m, errUnloaded
	}
	b.lastID++
	id := "host-" + strconv.Itoa(b.lastID)
	b.pending[id] = response
	defer delete(b.pending, id)
	b.mu.Unlock()
	defer b.mu.Lock()
	out := &outgoing{JSONRPC: "2.0", ID: strconv.AppendQuote(nil, id), Method: method, Params: params}
	raw, err := jsonv2.Marshal(out, jsonv2.Deterministic(true))
	if err == nil {
		err = b.send(ctx, raw)
	}
	if err != nil {
		return m, err
	}
	select {
	case m, ok := <-response:
		if !ok {
			return m, errUnloaded
		}
		return m, nil
	case <-ctx.Done():
		if method != methodTeardown { // Teardown removes the frame
			b.withdraw(ctx, out.ID)
		}
		return m, context.Cause(ctx)
	}
}
