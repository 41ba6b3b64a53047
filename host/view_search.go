package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Names of the tools that replace a long list of tools: a model finds tools with a search.
const (
	searchTool   = "search_tools"
	describeTool = "describe_tool"
	callTool     = "call_tool"
)

var searchNames = []string{searchTool, describeTool, callTool}

// searchTools are the definitions of these tools, in the order of their names.
const searchTools = `{"name":"call_tool","description":"Calls a tool that search_tools has found.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"name":{"type":"string","description":"The name of the tool."},` +
	`"arguments":{"type":"object","description":"The arguments, as the input schema of the tool describes them."}},` +
	`"required":["name"]}},` +
	`{"name":"describe_tool","description":"Returns the definition of a tool: its description and input schema.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"name":{"type":"string","description":"The name of the tool."}},"required":["name"]},` +
	`"annotations":{"readOnlyHint":true,"openWorldHint":false}},` +
	`{"name":"search_tools","description":"Searches the tools of all servers by words. Returns the definitions ` +
	`of the tools that match best. Call them with call_tool.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"query":{"type":"string","description":"Words that describe what the tool does."},` +
	`"limit":{"type":"integer","minimum":1,"maximum":50,"description":"The most tools to return. Default: 10."}},` +
	`"required":["query"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`

const (
	defaultFound = 10
	maxFound     = 50
	// maxFoundBytes bounds the definitions of one search, which a model reads.
	maxFoundBytes = 128 << 10
)

// searches reports whether the tools of a catalogue are found by a search in place of a list.
func (v *View) searches(c *catalogue.Catalogue) bool {
	switch {
	case v.single() || !v.caller.May(policy.ActionCall):
		return false
	case v.host.servers.Current().Settings().Tools.Mode == config.ListSearch:
		return true
	}
	return v.host.servers.Current().Settings().Tools.Mode == config.ListAuto && c.Tokens() > catalogue.AutoSearchTokens
}

// searchPage returns the tools that are listed in search mode.
func (v *View) searchPage(c *catalogue.Catalogue) json.RawMessage {
	b := append([]byte{'['}, searchTools...)
	for _, item := range c.Items(catalogue.Tools) {
		if config.Match(v.host.servers.Current().Settings().Tools.Keep, item.Public) {
			b = append(append(b, ','), item.Definition...)
		}
	}
	return append(b, ']')
}

// useSearch serves a call of one of the tools of search mode. ok is false for any other tool.
func (v *View) useSearch(ctx context.Context, req *mcp.Request, name string) (res mcp.Result, ok bool, err error) {
	m := v.latest()
	if m == nil {
		if m, err = v.current(ctx); err != nil {
			return nil, true, err
		}
	}
	if !v.searches(m.catalogue) {
		return nil, false, nil
	}
	raw, _ := req.Param("arguments")
	var args struct {
		Name, Query string
		Limit       int
		Arguments   json.RawMessage
	}
	if len(raw) > 0 {
		if err := fold.Named([]string{"name", "query", "limit", "arguments"}).Check(raw); err != nil {
			return failed("invalid arguments: " + err.Error()), true, nil // the policy could decide about another call
		}
		if err := json.Unmarshal(raw, &args); err != nil {
			return failed(invalidArguments(name, err)), true, nil
		}
	}
	switch {
	case name != searchTool && args.Name == "":
		return failed("missing arguments.name: must be the name of a tool"), true, nil
	case len(args.Arguments) > 0 && !jsonscan.IsObject(args.Arguments):
		return failed("invalid arguments.arguments: must be an object"), true, nil
	}
	switch name {
	case searchTool:
		if m, err = v.current(ctx); err != nil {
			return nil, true, err
		}
		limit := min(max(args.Limit, 0), maxFound)
		if limit == 0 {
			limit = defaultFound
		}
		return found(v.usableBy(req, m.catalogue.Search(args.Query, limit))), true, nil
	case describeTool:
		item, _, err := v.find(ctx, catalogue.Tools, args.Name)
		if err != nil {
			return nil, true, err
		}
		if item == nil || len(v.usableBy(req, []*catalogue.Item{item})) == 0 {
			return failed(fmt.Sprintf("unknown tool %q", args.Name)), true, nil
		}
		return found([]*catalogue.Item{item}), true, nil
	}
	res, err = v.callFound(ctx, req, args.Name, args.Arguments)
	return res, true, err
}

// invalidArguments returns the text for arguments that a tool of search mode cannot decode.
func invalidArguments(tool string, err error) string {
	member := ""
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		member = "." + strings.ToLower(e.Field)
	}
	return fmt.Sprintf("invalid arguments%s: must have the type that the input schema of %s has", member, tool)
}

// callFound calls the tool that call_tool names, as if the client had called it.
func (v *View) callFound(ctx context.Context, req *mcp.Request, name string, args json.RawMessage) (mcp.Result, error) {
	item, p, err := v.find(ctx, catalogue.Tools, name)
	if err != nil {
		return nil, err
	}
	if item == nil {
		return failed(fmt.Sprintf("unknown tool %q: find one with %s", name, searchTool)), nil
	}
	inner := *req
	inner.Params = jsonscan.WithMember(req.Params, "name", jsonscan.AppendQuote(nil, item.Public))
	if len(args) == 0 {
		inner.Params = jsonscan.Without(inner.Params, "arguments")
	} else {
		inner.Params = jsonscan.WithMember(inner.Params, "arguments", args)
	}
	return v.send(ctx, &inner, &call.Call{Kind: policy.ActionCall, Pool: p, Target: item.Original, Item: item})
}

// found returns definitions as a result for a model.
func found(items []*catalogue.Item) mcp.Result {
	list := []byte(`{"tools":[`)
	for n, item := range items {
		if len(list)+len(item.Definition) > maxFoundBytes {
			break
		}
		if n > 0 {
			list = append(list, ',')
		}
		list = append(list, item.Definition...)
	}
	list = append(list, "]}"...)
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), string(list))
	return mcp.RawResult(append(append(append(b, `}],"structuredContent":`...), list...), '}'))
}

// failed returns the result of a call that the model can correct.
func failed(text string) mcp.Result {
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	return mcp.RawResult(append(b, `}],"isError":true}`...))
}
