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

// maxPageBytes limits a page of several skills. Clients accept messages of 16 MiB.
const maxPageBytes = 4 << 20

type listResult struct {
	mcp.EmptyResult `json:"-"`
	Skills          []json.RawMessage `json:"skills"`
	NextCursor      string            `json:"nextCursor,omitzero"`
	mcp.Cache
}

type getResult struct {
	mcp.EmptyResult `json:"-"`
	Skill           json.RawMessage `json:"skill"`
	mcp.Cache
}

type directoryResult struct {
	mcp.EmptyResult `json:"-"`
	Resources       []*mcp.Resource `json:"resources"`
	NextCursor      string          `json:"nextCursor,omitzero"`
	mcp.Cache
}

type params struct {
	URI    *string `json:"uri,omitzero"`
	Cursor *string `json:"cursor,omitzero"`
}

func parseParams(req *mcp.Request, wantURI bool) (p params, err error) {
	if jsonv2.Unmarshal(req.Params, &p) != nil {
		return p, mcp.Errorf(mcp.CodeInvalidParams, "params.uri or params.cursor is not a string")
	}
	switch {
	case wantURI && p.URI == nil:
		return p, mcp.Errorf(mcp.CodeInvalidParams, "params.uri is missing")
	case wantURI && len(*p.URI) > maxURI:
		return p, mcp.Errorf(mcp.CodeInvalidParams, "params.uri has %d bytes, want at most %d", len(*p.URI), maxURI)
	}
	return p, nil
}

func (c *Catalog) list(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseParams(req, false)
	if err != nil {
		return nil, err
	}
	after, err := parseCursor(p.Cursor, methodList)
	if err != nil {
		return nil, err
	}
	res := &listResult{Skills: []json.RawMessage{}, Cache: c.opts.Cache}
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

func (c *Catalog) get(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseParams(req, true)
	if err != nil {
		return nil, err
	}
	e, ok := c.current.Load().byURI[*p.URI]
	if !ok || !c.visible(ctx, e) {
		return nil, notFound(*p.URI, "unknown skill; its URI is that of its "+skillFile)
	}
	return &getResult{Skill: e.encoded, Cache: c.opts.Cache}, nil
}

// directory serves resources/directory/read. A directory in which the caller may not see any entry
// does not exist for the caller.
func (c *Catalog) directory(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseParams(req, true)
	if err != nil {
		return nil, err
	}
	after, err := parseCursor(p.Cursor, *p.URI)
	if err != nil {
		return nil, err
	}
	snap := c.current.Load()
	if !c.visibleDir(ctx, snap, *p.URI) {
		return nil, notFound(*p.URI, "unknown directory; its URI has no slash at the end")
	}
	res := &directoryResult{Resources: []*mcp.Resource{}, Cache: c.opts.Cache}
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

func notFound(uri, message string) *mcp.Error {
	e := mcp.NotFound(uri)
	e.Message = message
	return e
}

// visible reports whether the caller may see a skill, which requires all of its files.
func (c *Catalog) visible(ctx context.Context, e *entry) bool {
	for _, f := range e.files {
		if !c.server.Visible(ctx, mcp.Feature{Resource: f.resource}) {
			return false
		}
	}
	return true
}

// visibleDir reports whether a directory is empty or contains an entry that the caller may see.
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

// newCursor returns a cursor with the last item of a page, which stays valid when items are added
// or removed. It needs no signature: a forged cursor reveals no hidden entry.
func newCursor(last, list string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\x00" + last))
}

// parseCursor returns the item after which the page begins, or "" for the first page.
func parseCursor(cursor *string, list string) (string, error) {
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
	of, last, ok := strings.Cut(string(plain), "\x00")
	if !ok || of != list || last == "" {
		return "", invalid
	}
	return last, nil
}
