package apps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A View describes a user interface: an HTML document that hosts show in a frame.
//
// Spec: SEP-1865, UI Resource Format.
type View struct {
	// URI identifies the view: "ui://" and a name of the server's choice, such as
	// "ui://weather/dashboard".
	URI string
	// Name is the view's name for programs. It is required.
	Name string
	// Title is the name for display. Default: Name.
	Title string
	// Description describes the view to people and models.
	Description string
	// Frame is what the view needs in addition to its document. Default: no permissions.
	Frame Frame
	// Cache says how long and for whom hosts may cache the document. Default: not at all.
	Cache mcp.Cache
}

// maxView is the largest size of a view, in bytes: the default limit of [Host].
const maxView = 8 << 20

// doctype matches the beginning of an HTML document, with comments before the doctype.
var doctype = regexp.MustCompile(`(?is)^\x{feff}?\s*(<!--.*?-->\s*)*<!doctype\s+html`)

// Views registers the views of a server. Its methods are safe for concurrent use.
type Views struct {
	server *mcp.Server

	mu    sync.Mutex // guards the field below
	known map[string]bool
}

// New makes a server declare the extension io.modelcontextprotocol/ui, and returns its Views. Call
// it once for a server, before the server serves.
//
// Tools that only views may call are not listed for clients that do not show views, because these
// would show them to the model.
//
// Spec: SEP-1865, Client<>Server Capability Negotiation.
func New(s *mcp.Server) *Views {
	v := &Views{server: s, known: map[string]bool{}}
	s.AddExtension(ID, nil)
	s.Use(hideAppTools)
	return v
}

// Add registers a view with a document of up to 8 MiB. Scripts and styles are inline, or come from
// origins in Frame.CSP.
//
// Add panics if the view is invalid: it lacks a name, its URI is taken or does not begin with
// "ui://", its Frame contains an invalid origin, or the document lacks a doctype.
//
// Spec: SEP-1865, Content Requirements.
func (v *Views) Add(view *View, html string) *mcp.Registration[mcp.Resource] {
	if err := checkHTML([]byte(html)); err != nil {
		panic(fmt.Sprintf("apps: view %q: %v", view.URI, err))
	}
	return v.AddFunc(view, func(context.Context) (string, error) { return html, nil })
}

// AddFile registers a view whose document is a file, such as a file of an [embed.FS]. The file is
// read for each request, so that it can be edited while the server runs. AddFile panics as
// [Views.Add] does, and if the file cannot be read.
func (v *Views) AddFile(view *View, fsys fs.FS, name string) *mcp.Registration[mcp.Resource] {
	if _, err := readHTML(fsys, name); err != nil {
		panic(fmt.Sprintf("apps: view %q: %v", view.URI, err))
	}
	return v.AddFunc(view, func(context.Context) (string, error) { return readHTML(fsys, name) })
}

// AddFunc registers a view whose document f returns for each request. f is called concurrently. Its
// errors are handled like errors of a resource, see [mcp.AddResource]. AddFunc panics as
// [Views.Add] does.
//
// A host may read a view before any of its tools runs, and cache it. The data of a call belongs
// into the tool's result.
func (v *Views) AddFunc(
	view *View, f func(ctx context.Context) (html string, err error),
) *mcp.Registration[mcp.Resource] {
	if view == nil || f == nil {
		panic("apps: the view or its function is nil")
	}
	err := checkURI(view.URI)
	if err == nil {
		err = view.Frame.check()
	}
	if err != nil {
		panic(fmt.Sprintf("apps: view %q: %v", view.URI, err))
	}
	meta := mcp.Meta{metaKey: view.Frame.clone()}
	r := mcp.AddResource(v.server, &mcp.Resource{
		URI: view.URI, Name: view.Name, Title: view.Title, Description: view.Description,
		MIMEType: MIMEType, Meta: meta, Cache: view.Cache,
	}, func(ctx context.Context, uri string) (*mcp.ResourceContents, error) {
		html, err := f(ctx)
		if err != nil {
			return nil, err
		}
		return &mcp.ResourceContents{URI: uri, MIMEType: MIMEType, Text: html, Meta: meta}, nil
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known[view.URI] = true
	return r
}

func (f Frame) clone() Frame {
	for _, l := range f.CSP.lists() {
		*l.origins = slices.Clone(*l.origins)
	}
	if f.PrefersBorder != nil {
		border := *f.PrefersBorder
		f.PrefersBorder = &border
	}
	return f
}

// WithUI returns a copy of a tool with the metadata of u, to be registered with [mcp.AddTool] or a
// similar function. The View of a tool shows its results.
//
//	onlyView := []apps.Visibility{apps.VisibilityApp}
//	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "refresh"}, &apps.ToolUI{View: uri, Visibility: onlyView}), f)
//
// WithUI panics if the view is not registered, or if Visibility is empty or contains an unknown
// value.
//
// Spec: SEP-1865, Resource Discovery.
func (v *Views) WithUI(t *mcp.Tool, u *ToolUI) *mcp.Tool {
	if t == nil || u == nil {
		panic("apps: WithUI: the tool or its ToolUI is nil")
	}
	if err := v.check(u); err != nil {
		panic(fmt.Sprintf("apps: tool %q: %v", t.Name, err))
	}
	linked := *t
	linked.Meta = maps.Clone(t.Meta)
	if linked.Meta == nil {
		linked.Meta = mcp.Meta{}
	}
	linked.Meta[metaKey] = ToolUI{View: u.View, Visibility: slices.Clone(u.Visibility)}
	if u.View != "" {
		linked.Meta[flatKey] = u.View
	}
	return &linked
}

func (v *Views) check(u *ToolUI) error {
	v.mu.Lock()
	known := v.known[u.View]
	v.mu.Unlock()
	if u.View != "" && !known {
		return fmt.Errorf("the view %q is not registered; register the view first", u.View)
	}
	if !u.ForModel() && !u.ForApp() {
		return fmt.Errorf("the visibility is %q, want %q, %q or both", u.Visibility, VisibilityModel, VisibilityApp)
	}
	for _, kind := range u.Visibility {
		if kind != VisibilityModel && kind != VisibilityApp {
			return fmt.Errorf("unknown visibility %q, want %q or %q", kind, VisibilityModel, VisibilityApp)
		}
	}
	return nil
}

// hideAppTools removes tools that only views may call from the lists of clients that do not show
// views.
func hideAppTools(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		page, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok || !slices.ContainsFunc(page.Tools, forAppOnly) {
			return res, err
		}
		shown := *page
		shown.Public = false // clients get different lists
		if !supports(req) {
			shown.Tools = slices.DeleteFunc(slices.Clone(page.Tools), forAppOnly)
		}
		return &shown, nil
	})
}

func forAppOnly(t *mcp.Tool) bool {
	if t.Meta[metaKey] == nil {
		return false
	}
	u, err := ToolUIOf(t)
	return err == nil && !u.ForModel()
}

func readHTML(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	html, err := io.ReadAll(io.LimitReader(f, maxView+1))
	if err == nil {
		err = checkHTML(html)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(html), nil
}

func checkHTML(html []byte) error {
	switch {
	case len(html) > maxView:
		return fmt.Errorf("the document has at least %d bytes, the limit is %d", len(html), maxView)
	case !utf8.Valid(html):
		return errors.New("the document is not UTF-8")
	case !doctype.Match(html[:min(len(html), 64<<10)]):
		return errors.New("the document does not begin with <!DOCTYPE html>")
	case bytes.IndexByte(html, 0) >= 0:
		return errors.New("the document has a NUL character")
	}
	return nil
}
