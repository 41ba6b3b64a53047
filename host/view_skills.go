package host

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// extensionSkills is the extension of skills; see package ext/skills.
const extensionSkills = "io.modelcontextprotocol/skills"

// hasSkills reports whether the server has skills, as far as it is known.
func hasSkills(p *upstream.Pool) bool {
	return jsonscan.HasObject(taskServer(p).Capabilities, "extensions", extensionSkills)
}

// skills serves a method of the extension. Spec: skills.mdx.
func (v *View) skills(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	some := false
	for _, p := range v.pools() {
		some = some || hasSkills(p)
	}
	switch {
	case len(v.pools()) == 1 && req.Method != call.MethodSkillList:
		uri, err := uriOf(req)
		if err != nil {
			return nil, err
		}
		return v.send(ctx, req, &call.Call{Kind: policy.ActionRead, Pool: v.pools()[0], Target: uri})
	case len(v.pools()) == 1 || !some:
		return v.other(ctx, req)
	case req.Method == call.MethodSkillList:
		return v.listSkills(ctx, req)
	}
	return v.readSkill(ctx, req)
}

func (v *View) listCursors(req *mcp.Request) round.Cursors {
	return round.Cursors{Ring: v.host.states.Ring,
		Bound: []string{"cursor", v.caller.Key(), v.caller.Profile, v.caller.Server, req.Method}}
}

// listSkills serves skills/list: the skills of one server after the other.
func (v *View) listSkills(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	cursors := v.listCursors(req)
	at, err := cursors.Open(req)
	if err != nil {
		return nil, err
	}
	if _, err := v.current(ctx); err != nil {
		return nil, err
	}
	var names []string // of the servers with skills
	for _, p := range v.pools() {
		if hasSkills(p) {
			names = append(names, p.Name())
		}
	}
	for n, name := range names {
		p := v.poolNamed(name)
		if at.Server != "" && at.Server != name || p == nil {
			continue
		}
		inner := *req
		inner.Params = []byte("{}")
		if at.Cursor != "" {
			inner.Params = append(jsonscan.AppendQuote([]byte(`{"cursor":`), at.Cursor), '}')
		}
		res, err := v.send(ctx, &inner, &call.Call{Kind: policy.ActionOther, Pool: p})
		raw, ok := res.(mcp.RawResult)
		if err != nil || !ok || !jsonscan.IsObject(raw) {
			if at.Cursor != "" { // the client has a part of its list
				return res, err
			}
			at = round.Cursor{}
			v.host.opts.Logger.DebugContext(ctx, "host: skills not listed", "server", p.Name(), "error", err)
			continue
		}
		return mcp.RawResult(v.skillPage(p, raw, cursors.After(names[n:], at, raw))), nil
	}
	return mcp.RawResult(`{"resultType":"complete","skills":[],"ttlMs":0,"cacheScope":"private"}`), nil
}

// skillPage returns a page of skills with the URIs that callers know, and the cursor of the next one.
func (v *View) skillPage(p *upstream.Pool, raw []byte, next string) []byte {
	list, _ := jsonscan.Get(raw, "skills")
	b := []byte(`{"resultType":"complete","skills":[`)
	if jsonscan.Kind(list) == '[' {
		first := true
		for skill := range jsonscan.Elements(list) {
			if !first {
				b = append(b, ',')
			}
			b, first = append(b, v.publicSkill(p, skill)...), false
		}
	}
	if b = append(b, ']'); next != "" {
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), next)
	}
	return append(b, `,"ttlMs":0,"cacheScope":"private"}`...)
}

// publicSkill returns a skill with the URIs that callers know, all of them in one directory. Its files
// are read from its server.
func (v *View) publicSkill(p *upstream.Pool, skill []byte) []byte {
	if !jsonscan.IsObject(skill) {
		return skill
	}
	files, _ := jsonscan.Get(skill, "resources")
	isList := jsonscan.Kind(files) == '['
	mapped := v.mapsSkill(p, jsonscan.GetString(skill, "uri"))
	if isList {
		for file := range jsonscan.Elements(files) {
			mapped = mapped || v.mapsSkill(p, jsonscan.GetString(file, "uri"))
		}
		skill = jsonscan.WithMember(skill, "resources", v.skillFiles(p, files, mapped))
	}
	return v.skillFile(p, skill, mapped)
}

// mapsSkill reports whether a URI of a skill leads to another server.
func (v *View) mapsSkill(p *upstream.Pool, uri string) bool {
	other := v.named.get(uri)
	return other != nil && other != p || v.publicURI(p.Name(), uri) != uri
}

// skillFiles returns an array of objects whose members uri are those that callers know.
func (v *View) skillFiles(p *upstream.Pool, array []byte, mapped bool) []byte {
	b := []byte{'['}
	for element := range jsonscan.Elements(array) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, v.skillFile(p, element, mapped)...)
	}
	return append(b, ']')
}

// skillFile returns an object whose member uri is that which callers know. A mapped one keeps its
// slashes, because the directory of a skill is part of its meaning.
func (v *View) skillFile(p *upstream.Pool, object []byte, mapped bool) []byte {
	uri := jsonscan.GetString(object, "uri")
	switch {
	case uri == "" || len(uri) > maxNamedURI:
		return object
	case !mapped:
		v.named.add(uri, p)
		return object
	}
	return jsonscan.WithMember(object, "uri", jsonscan.AppendQuote(nil, "patchbay://"+p.Entry().ID+"/"+uri))
}

// uriOf returns the URI that a request names.
func uriOf(req *mcp.Request) (string, error) {
	raw, _ := req.Param("uri")
	uri, err := jsonscan.Unquote(raw)
	if err != nil {
		return "", mcp.Errorf(mcp.CodeInvalidParams, "invalid params.uri: must be a string")
	}
	return uri, nil
}

// readSkill serves skills/get and resources/directory/read. A URI that no list has shown is asked of
// all servers with skills, in their order.
func (v *View) readSkill(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	uri, err := uriOf(req)
	if err != nil {
		return nil, err
	}
	var routes []*call.Call
	if r, err := v.routeURI(ctx, uri); err == nil && hasSkills(poolOf(r)) {
		routes = append(routes, r)
	} else {
		for _, p := range v.pools() {
			if hasSkills(p) {
				routes = append(routes, &call.Call{Pool: p, Target: uri})
			}
		}
	}
	for _, r := range routes {
		var res mcp.Result
		inner := *req
		inner.Params = jsonscan.WithMember(req.Params, "uri", jsonscan.AppendQuote(nil, r.Target))
		res, err = v.send(ctx, &inner, &call.Call{Kind: policy.ActionRead, Pool: poolOf(r), Target: r.Target})
		raw, ok := res.(mcp.RawResult)
		switch {
		case err == nil && ok && jsonscan.IsObject(raw):
			return v.skillResult(r, uri, raw), nil
		case err == nil:
			return res, nil
		}
		if _, refused := errors.AsType[*mcp.Error](err); !refused {
			return nil, err
		}
	}
	return nil, err
}

// skillResult returns the description of a skill, or the entries of a directory, with the URIs that
// callers know.
func (v *View) skillResult(r *call.Call, uri string, raw mcp.RawResult) mcp.RawResult {
	if skill, ok := jsonscan.Get(raw, "skill"); ok {
		raw = jsonscan.WithMember(raw, "skill", v.publicSkill(poolOf(r), skill))
	}
	if resources, ok := jsonscan.Get(raw, "resources"); ok && jsonscan.Kind(resources) == '[' {
		raw = jsonscan.WithMember(raw, "resources", v.skillFiles(poolOf(r), resources, uri != r.Target))
	}
	return raw
}
