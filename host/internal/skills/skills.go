// Package skills serves the methods of the skills extension for a caller of several servers; see package
// ext/skills. It lists the skills of the servers in turn, and maps their URIs.
package skills

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Reader reads the skills of the servers of a caller. It is safe for concurrent use.
type Reader struct {
	// Table contains the servers.
	Table *routes.Table
	// Send sends a request to a server. target is the URI that it names, at the server.
	Send func(
		ctx context.Context, req *mcp.Request, kind policy.ActionKind, s routes.Server, target string,
	) (mcp.Result, error)
	// Other serves a method of an extension that the host does not know.
	Other func(ctx context.Context, req *mcp.Request) (mcp.Result, error)
	// Logger logs the servers that fail to list their skills.
	Logger *slog.Logger
}

// hasSkills reports whether the server offers skills, as far as it is known.
func hasSkills(s routes.Server) bool {
	return jsonscan.HasObject(s.Lists().About().Capabilities, "extensions", routes.ExtensionSkills)
}

// Serve serves a method of the extension. Spec: skills.mdx.
func (r *Reader) Serve(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	all := r.Table.Servers().All
	switch {
	case len(all) == 1 && req.Method != call.MethodSkillList:
		uri, err := routes.URIOf(req)
		if err != nil {
			return nil, err
		}
		return r.Send(ctx, req, policy.ActionRead, all[0], uri)
	case len(all) == 1 || !slices.ContainsFunc(all, hasSkills):
		return r.Other(ctx, req)
	case req.Method == call.MethodSkillList:
		return r.list(ctx, req)
	}
	return r.read(ctx, req)
}

// list serves skills/list: the skills of the servers in turn.
func (r *Reader) list(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	cursors := r.Table.Cursors(req)
	at, err := cursors.Open(req)
	if err != nil {
		return nil, err
	}
	if _, err := r.Table.Current(ctx); err != nil {
		return nil, err
	}
	var names []string // of the servers with skills
	for _, p := range r.Table.Servers().All {
		if hasSkills(p) {
			names = append(names, p.Name())
		}
	}
	for n, name := range names {
		p := r.Table.Servers().Named(name)
		if at.Server != "" && at.Server != name || p == nil {
			continue
		}
		inner := *req
		inner.Params = []byte("{}")
		if at.Cursor != "" {
			inner.Params = append(jsonscan.AppendQuote([]byte(`{"cursor":`), at.Cursor), '}')
		}
		res, err := r.Send(ctx, &inner, policy.ActionOther, p, "")
		raw, ok := res.(mcp.RawResult)
		if err != nil || !ok || !jsonscan.IsObject(raw) {
			if at.Cursor != "" { // the client received a part of its list
				return res, err
			}
			at = round.Cursor{}
			r.Logger.DebugContext(ctx, "host: skills not listed", "server", p.Name(), "error", err)
			continue
		}
		return mcp.RawResult(r.page(p, raw, cursors.After(names[n:], at, raw))), nil
	}
	return mcp.RawResult(`{"resultType":"complete","skills":[],"ttlMs":0,"cacheScope":"private"}`), nil
}

// page returns a page of skills with the URIs that callers know, and the cursor of the next page.
func (r *Reader) page(p routes.Server, raw []byte, next string) []byte {
	list, _ := jsonscan.Get(raw, "skills")
	b := []byte(`{"resultType":"complete","skills":[`)
	if jsonscan.Kind(list) == '[' {
		first := true
		for skill := range jsonscan.Elements(list) {
			if !first {
				b = append(b, ',')
			}
			b, first = append(b, r.public(p, skill)...), false
		}
	}
	if b = append(b, ']'); next != "" {
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), next)
	}
	return append(b, `,"ttlMs":0,"cacheScope":"private"}`...)
}

// public returns a skill with the URIs that callers know, all of them in the same directory. Its files
// are read from its server.
func (r *Reader) public(p routes.Server, skill []byte) []byte {
	if !jsonscan.IsObject(skill) {
		return skill
	}
	files, _ := jsonscan.Get(skill, "resources")
	isList := jsonscan.Kind(files) == '['
	mapped := r.maps(p, jsonscan.GetString(skill, "uri"))
	if isList {
		for file := range jsonscan.Elements(files) {
			mapped = mapped || r.maps(p, jsonscan.GetString(file, "uri"))
		}
		skill = jsonscan.WithMember(skill, "resources", r.files(p, files, mapped))
	}
	return r.file(p, skill, mapped)
}

// maps reports whether a URI of a skill leads to another server, so that it must be mapped.
func (r *Reader) maps(p routes.Server, uri string) bool {
	other := r.Table.URIs().Get(uri)
	return other != nil && other != p || r.Table.URIs().Public(p.Name(), uri) != uri
}

// files returns an array of objects whose members uri contain the URIs that callers know.
func (r *Reader) files(p routes.Server, array []byte, mapped bool) []byte {
	b := []byte{'['}
	for element := range jsonscan.Elements(array) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, r.file(p, element, mapped)...)
	}
	return append(b, ']')
}

// file returns an object whose member uri contains the URI that callers know. A mapped URI must keep its
// slashes, because the directory of a skill is part of its meaning.
func (r *Reader) file(p routes.Server, object []byte, mapped bool) []byte {
	uri := jsonscan.GetString(object, "uri")
	switch {
	case uri == "" || len(uri) > routes.MaxURI:
		return object
	case !mapped:
		r.Table.URIs().Add(uri, p)
		return object
	}
	return jsonscan.WithMember(object, "uri", jsonscan.AppendQuote(nil, "patchbay://"+p.Entry().ID+"/"+uri))
}

// read serves skills/get and resources/directory/read. A request for a URI that no list contains is sent to
// the servers with skills, in their order, until a server responds.
func (r *Reader) read(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	uri, err := routes.URIOf(req)
	if err != nil {
		return nil, err
	}
	var ways []routes.Route
	if way, err := r.Table.URIs().Route(ctx, uri); err == nil && hasSkills(way.Server) {
		ways = append(ways, way)
	} else {
		for _, p := range r.Table.Servers().All {
			if hasSkills(p) {
				ways = append(ways, routes.Route{Server: p, URI: uri})
			}
		}
	}
	for _, way := range ways {
		var res mcp.Result
		inner := *req
		inner.Params = jsonscan.WithMember(req.Params, "uri", jsonscan.AppendQuote(nil, way.URI))
		res, err = r.Send(ctx, &inner, policy.ActionRead, way.Server, way.URI)
		raw, ok := res.(mcp.RawResult)
		switch {
		case err == nil && ok && jsonscan.IsObject(raw):
			return r.result(way, uri, raw), nil
		case err == nil:
			return res, nil
		}
		if _, refused := errors.AsType[*mcp.Error](err); !refused {
			return nil, err
		}
	}
	return nil, err
}

// result returns the description of a skill, or the entries of a directory, with the URIs that
// callers know.
func (r *Reader) result(way routes.Route, uri string, raw mcp.RawResult) mcp.RawResult {
	if skill, ok := jsonscan.Get(raw, "skill"); ok {
		raw = jsonscan.WithMember(raw, "skill", r.public(way.Server, skill))
	}
	if resources, ok := jsonscan.Get(raw, "resources"); ok && jsonscan.Kind(resources) == '[' {
		raw = jsonscan.WithMember(raw, "resources", r.files(way.Server, resources, uri != way.URI))
	}
	return raw
}
