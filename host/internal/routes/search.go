package routes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/config"
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

// IsSearchTool reports whether a tool is called like a tool of search mode.
func IsSearchTool(name string) bool { return slices.Contains(searchNames, name) }

// searchTools contains the definitions of these tools, in the order of their names.
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
	// maxFoundBytes limits the definitions that a search returns, which a model reads.
	maxFoundBytes = 128 << 10
)

// Searches reports whether the tools of a catalogue are found by a search in place of a list.
func (t *Table) Searches(c *catalogue.Catalogue) bool {
	s := t.Servers()
	mode := s.Settings.Tools.Mode
	switch {
	case s.Single || !t.o.Caller.May(policy.ActionCall):
		return false
	case mode == config.ListSearch:
		return true
	}
	return mode == config.ListAuto && c.Tokens() > catalogue.AutoSearchTokens
}

// Search serves a call of a tool of search mode. ok is false for any other tool.
func (t *Table) Search(ctx context.Context, req *mcp.Request, name string) (res mcp.Result, ok bool, err error) {
	return searcher{t}.serve(ctx, req, name)
}

// A searcher serves the tools of search mode for the caller of a table.
type searcher struct{ *Table }

// page returns the tools that are listed in search mode.
func (t searcher) page(c *catalogue.Catalogue) json.RawMessage {
	b := append([]byte{'['}, searchTools...)
	keep := t.Servers().Settings.Tools.Keep
	for _, item := range c.Items(catalogue.Tools) {
		if config.Match(keep, item.Public) {
			b = item.AppendDefinition(append(b, ','))
		}
	}
	return append(b, ']')
}

func (t searcher) serve(ctx context.Context, req *mcp.Request, name string) (res mcp.Result, ok bool, err error) {
	m := t.Latest()
	if m == nil {
		if m, err = t.Current(ctx); err != nil {
			return nil, true, err
		}
	}
	if !t.Searches(m.Catalogue) {
		return nil, false, nil
	}
	args, invalid := searchArgumentsOf(req, name)
	if invalid != "" {
		return Failed(invalid), true, nil
	}
	switch name {
	case searchTool:
		res, err = t.search(ctx, req, args)
	case describeTool:
		res, err = t.describe(ctx, req, args.Name)
	default:
		res, err = t.callFound(ctx, req, args)
	}
	return res, true, err
}

// searchArguments contains the arguments of the tools of search mode.
type searchArguments struct {
	Name, Query string
	Limit       int
	Arguments   json.RawMessage
}

// searchArgumentsOf returns the arguments of a call of a tool. invalid is a text for the model; it is empty for
// valid arguments.
func searchArgumentsOf(req *mcp.Request, tool string) (args *searchArguments, invalid string) {
	args = &searchArguments{}
	if raw, _ := req.Param("arguments"); len(raw) > 0 {
		if err := fold.Named([]string{"name", "query", "limit", "arguments"}).Check(raw); err != nil {
			return nil, "invalid arguments: " + err.Error() // the policy could decide about another call
		}
		if err := json.Unmarshal(raw, args); err != nil {
			return nil, invalidArguments(tool, err)
		}
	}
	switch {
	case tool != searchTool && args.Name == "":
		return nil, "missing arguments.name: must be the name of a tool"
	case len(args.Arguments) > 0 && !jsonscan.IsObject(args.Arguments):
		return nil, "invalid arguments.arguments: must be an object"
	}
	return args, ""
}

// search serves search_tools.
func (t searcher) search(ctx context.Context, req *mcp.Request, args *searchArguments) (mcp.Result, error) {
	m, err := t.Current(ctx)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(min(max(args.Limit, 0), maxFound), defaultFound)
	return found(t.toolsOf(req).usable(m.Catalogue.Search(args.Query, limit))), nil
}

// describe serves describe_tool.
func (t searcher) describe(ctx context.Context, req *mcp.Request, name string) (mcp.Result, error) {
	item, _, err := t.Find(ctx, catalogue.Tools, name)
	if err != nil {
		return nil, err
	}
	if item == nil || len(t.toolsOf(req).usable([]*catalogue.Item{item})) == 0 {
		return Failed(fmt.Sprintf("unknown tool %q", name)), nil
	}
	return found([]*catalogue.Item{item}), nil
}

// invalidArguments returns the text for arguments that a tool of search mode cannot decode.
func invalidArguments(tool string, err error) string {
	member := ""
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		member = "." + strings.ToLower(e.Field)
	}
	return fmt.Sprintf("invalid arguments%s: must have the type that the input schema of %s has", member, tool)
}

// callFound serves call_tool: it calls a tool as if the client had called it.
func (t searcher) callFound(ctx context.Context, req *mcp.Request, args *searchArguments) (mcp.Result, error) {
	item, s, err := t.Find(ctx, catalogue.Tools, args.Name)
	if err != nil {
		return nil, err
	}
	if item == nil {
		return Failed(fmt.Sprintf("unknown tool %q: find one with %s", args.Name, searchTool)), nil
	}
	inner := *req
	inner.Params = jsonscan.WithMember(req.Params, "name", jsonscan.AppendQuote(nil, item.Public))
	if len(args.Arguments) == 0 {
		inner.Params = jsonscan.Without(inner.Params, "arguments")
	} else {
		inner.Params = jsonscan.WithMember(inner.Params, "arguments", args.Arguments)
	}
	return t.o.Call(ctx, &inner, s, item)
}

// found returns definitions as a result for a model.
func found(items []*catalogue.Item) mcp.Result {
	list := []byte(`{"tools":[`)
	for n, item := range items {
		if len(list)+item.Size() > maxFoundBytes {
			break
		}
		if n > 0 {
			list = append(list, ',')
		}
		list = item.AppendDefinition(list)
	}
	list = append(list, "]}"...)
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), string(list))
	return mcp.RawResult(append(append(append(b, `}],"structuredContent":`...), list...), '}'))
}

// Failed returns the result of a call that the model can correct.
func Failed(text string) mcp.Result {
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	return mcp.RawResult(append(b, `}],"isError":true}`...))
}

// Text returns the result of a successful call, with a text.
func Text(text string) mcp.Result {
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	return mcp.RawResult(append(b, `}]}`...))
}
