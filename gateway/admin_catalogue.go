package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func catalogueRoutes() []*adminRoute {
	return []*adminRoute{getRoute("/catalogue",
		"Tools, prompts, resources or resource templates that the local user may use. Reading them may start servers",
		(*adminRequest).catalogue)}
}

// A catalogueQuery selects a list.
type catalogueQuery struct {
	Kind    string `json:"kind" jsonschema:"what is listed,enum=tools|prompts|resources|templates,default=tools"`
	Profile string `json:"profile,omitzero" jsonschema:"a profile of the configuration; default: all servers"`
	Server  string `json:"server,omitzero" jsonschema:"one server, with its names unchanged"`
	Cursor  string `json:"cursor,omitzero" jsonschema:"nextCursor of the previous page"`
}

// A cataloguePage is a page of a list.
type cataloguePage struct {
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items" jsonschema:"definitions as clients of 2026-07-28 receive them"`
	NextCursor string            `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

var catalogueMethods = map[string][2]string{"tools": {"tools/list", "tools"}, "prompts": {"prompts/list", "prompts"},
	"resources": {"resources/list", "resources"}, "templates": {"resources/templates/list", "resourceTemplates"}}

func (r *adminRequest) catalogue(q *catalogueQuery) (*cataloguePage, error) {
	q.Kind = cmp.Or(q.Kind, "tools")
	method := catalogueMethods[q.Kind]
	params := map[string]any{}
	if q.Cursor != "" {
		params["cursor"] = q.Cursor
	}
	raw, err := r.list(r.Context(), Route{Profile: q.Profile, Server: q.Server}, method[0], params)
	if err != nil {
		return nil, err
	}
	p := &cataloguePage{Kind: q.Kind, Items: []json.RawMessage{}}
	items, _ := rawjson.Get(raw, method[1])
	for item := range rawjson.Elements(items) {
		p.Items = append(p.Items, json.RawMessage(item))
	}
	if next, ok := rawjson.Get(raw, "nextCursor"); ok {
		p.NextCursor, _ = rawjson.Unquote(next)
	}
	return p, nil
}

// list returns a page of a list that the caller may use, as a client of the newest revision
// receives it.
func (r *adminRequest) list(ctx context.Context, route Route, method string, params any) (json.RawMessage, error) {
	id := rand.Text()
	defer r.host().Operator().EndSession(id)
	e, err := r.admin.gateway.callerEndpoint(r.principal(), route, id)
	if err != nil {
		return nil, problemf(http.StatusNotFound, "unknown_route", "%v", err)
	}
	c, err := mcp.Connect(ctx, mcp.InMemory(e), &mcp.ClientOptions{Logger: r.admin.gateway.opts.Logger})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.Do(ctx, method, params)
	var refused *mcp.Error
	if errors.As(err, &refused) && refused.Code == mcp.CodeInvalidParams {
		return nil, invalidParameter("invalid cursor")
	}
	return raw, err
}
