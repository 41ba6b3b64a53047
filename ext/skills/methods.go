package skills

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"sort"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxPageBytes bounds the skills of one answer, but for the first: clients take messages of 16 MiB.
const maxPageBytes = 4 << 20

// A complete result is any of ours.
type complete struct{}

// ResultType is "complete".
func (complete) ResultType() string { return mcp.ResultComplete }

// ResultMeta is nil.
func (complete) ResultMeta() mcp.Meta { return nil }

type listResult struct {
	complete
	Skills     []json.RawMessage `json:"skills"`
	NextCursor string            `json:"nextCursor,omitzero"`
	mcp.Cache
}

type getResult struct {
	complete
	Skill json.RawMessage `json:"skill"`
	mcp.Cache
}

type directoryResult struct {
	complete
	Resources  []*mcp.Resource `json:"resources"`
	NextCursor string          `json:"nextCursor,omitzero"`
}

// params are those of all three methods.
type params struct {
	URI    *string `json:"uri"`
	Cursor *string `json:"cursor"`
}

func parseParams(req *mcp.Request, wantURI bool) (p params, err error) {
	if jsonv2.Unmarshal(req.Params, &p) != nil {
		return p, mcp.Errorf(mcp.CodeInvalidParams, "params.uri or params.cursor is no string")
	}
	switch {
	case wantURI && p.URI == nil:
		return p, mcp.Errorf(mcp.CodeInvalidParams, "params.uri is missing")
	case wantURI && len(*p.URI) > maxURI:
		return p, mcp.Errorf(mcp.CodeInvalidParams, "params.uri has %d bytes, want at most %d", len(*p.URI), maxURI)
	}
	return p, nil
}

// list serves skills/list.
//
// Spec: skills.mdx, Listing Skills.
func (c *Catalog) list(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseParams(req, false)
	if err != nil {
		return nil, err
	}
	after, err := openCursor(p.Cursor, methodList)
	if err != nil {
		return nil, err
	}
	res := &listResult{Skills: []json.RawMessage{}, Cache: c.server.CacheHints(c.opts.Cache)}
	all := c.current.Load().skills
	start := sort.Search(len(all), func(i int) bool { return all[i].skill.URI > after })
	last, size := "", 0
	for _, e := range all[start:] {
		if !c.visible(ctx, e) {
			continue
		}
		if n := len(res.Skills); n > 0 && (n == c.opts.PageSize || size+len(e.encoded) > maxPageBytes) {
			res.NextCursor = newCursor(last, methodList)
			break
		}
		res.Skills = append(res.Skills, e.encoded)
		size += len(e.encoded)
		last = e.skill.URI
	}
	return res, nil
}

// get serves skills/get.
//
// Spec: skills.mdx, Getting a Skill.
func (c *Catalog) get(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseParams(req, true)
	if err != nil {
		return nil, err
	}
	e, ok := c.current.Load().byURI[*p.URI]
	if !ok || !c.visible(ctx, e) {
		return nil, refused(*p.URI, "no skill has this URI; it is that of a "+skillFile)
	}
	return &getResult{Skill: e.encoded, Cache: c.server.CacheHints(c.opts.Cache)}, nil
}

// directory serves resources/directory/read. A folder of which the caller may see nothing is none.
//
// Spec: skills.mdx, Reading Directories.
func (c *Catalog) directory(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseParams(req, true)
	if err != nil {
		return nil, err
	}
	after, err := openCursor(p.Cursor, *p.URI)
	if err != nil {
		return nil, err
	}
	snap := c.current.Load()
	if !c.visibleDir(ctx, snap, *p.URI) {
		return nil, refused(*p.URI, "no folder has this URI; it has no slash at its end")
	}
	res := &directoryResult{Resources: []*mcp.Resource{}}
	for _, child := range snap.dirs[*p.URI] {
		if child.URI <= after || !c.visibleChild(ctx, snap, child) {
			continue
		}
		if n := len(res.Resources); n == c.opts.PageSize {
			res.NextCursor = newCursor(res.Resources[n-1].URI, *p.URI)
			break
		}
		res.Resources = append(res.Resources, child)
	}
	return res, nil
}

// refused says that there is nothing of a URI.
func refused(uri, why string) *mcp.Error {
	e := mcp.NotFound(uri)
	e.Message = why
	return e
}

// visible reports whether the caller may see a skill: whoever sees it is told all of its files.
func (c *Catalog) visible(ctx context.Context, e *entry) bool {
	for _, f := range e.files {
		if !c.server.Visible(ctx, mcp.Feature{Resource: f.resource}) {
			return false
		}
	}
	return true
}

// visibleDir reports whether the caller may see a folder: one that is empty, or that has something to see in it.
func (c *Catalog) visibleDir(ctx context.Context, snap *snapshot, uri string) bool {
	children, ok := snap.dirs[uri]
	for _, child := range children {
		if c.visibleChild(ctx, snap, child) {
			return true
		}
	}
	return ok && len(children) == 0
}

func (c *Catalog) visibleChild(ctx context.Context, snap *snapshot, child *mcp.Resource) bool {
	if child.MIMEType == directoryType {
		return c.visibleDir(ctx, snap, child.URI)
	}
	return c.server.Visible(ctx, mcp.Feature{Resource: child})
}

// newCursor returns a cursor that names the last item of a page, so that it stays right while items come and go. It holds
// what the caller has just been shown, and gives nothing to one who makes it up, so it needs no seal.
func newCursor(last, of string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(of + "\x00" + last))
}

// openCursor returns the item after which the page begins: the empty string for the first page.
func openCursor(cursor *string, of string) (string, error) {
	if cursor == nil {
		return "", nil
	}
	invalid := mcp.Errorf(mcp.CodeInvalidParams, "params.cursor is not a cursor of this list; start again without one")
	if len(*cursor) > 4*maxURI {
		return "", invalid
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(*cursor)
	if err != nil {
		return "", invalid
	}
	list, last, ok := strings.Cut(string(plain), "\x00")
	if !ok || list != of || last == "" {
		return "", invalid
	}
	return last, nil
}
