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
	// URI identifies the view: "ui://" and a name of the server's choice, such as "ui://weather/dashboard".
	URI string
	// Name is the view's name for programs.
	Name string
	// Title is what people see; Name when empty.
	Title string
	// Description says what the view shows and does.
	Description string
	// Frame says what the view needs beyond its own document. Default: nothing.
	Frame Frame
	// Cache says how long and for whom hosts may keep the document. Default: not at all.
	Cache mcp.Cache
}

// maxView bounds the bytes of a view that is registered: what hosts of this package take by default.
const maxView = 8 << 20

// doctype is how an HTML document begins; comments may stand before it.
var doctype = regexp.MustCompile(`(?is)^\x{feff}?\s*(<!--.*?-->\s*)*<!doctype\s+html`)

// Views are the views of a server. Its methods are safe for concurrent use.
type Views struct {
	server *mcp.Server

	mu    sync.Mutex // guards the field below
	known map[string]bool
}

// New returns a server the extension, before it serves. It is called once for a server.
//
// Clients that do not show views do not get those tools listed that are for views alone: they would show them to their
// model.
//
// Spec: SEP-1865.
func New(s *mcp.Server) *Views {
	v := &Views{server: s, known: map[string]bool{}}
	s.AddExtension(ID, nil)
	s.Use(hideAppTools)
	return v
}

// Add registers a view and gives its handle. Its HTML is one whole document of up to 8 MiB: its own scripts and styles
// stand in it, or come from origins in Frame.CSP.
//
// Add panics if the view cannot work: no name, a URI that is taken or does not begin with "ui://", a Frame with an origin
// that is none, a document without doctype.
//
// Spec: SEP-1865, Content Requirements.
func (v *Views) Add(view *View, html string) *mcp.Registration[mcp.Resource] {
	if err := checkHTML([]byte(html)); err != nil {
		panic(fmt.Sprintf("apps: view %q: %v", view.URI, err))
	}
	return v.AddFunc(view, func(context.Context) (string, error) { return html, nil })
}

// AddFile registers a file as a view, such as one of an [embed.FS], and gives its handle. It is read whenever a host asks,
// so a file on disk can be worked on while the server runs. It panics as [Views.Add] does, also if the file is not
// there.
func (v *Views) AddFile(view *View, fsys fs.FS, name string) *mcp.Registration[mcp.Resource] {
	if _, err := readHTML(fsys, name); err != nil {
		panic(fmt.Sprintf("apps: view %q: %v", view.URI, err))
	}
	return v.AddFunc(view, func(context.Context) (string, error) { return readHTML(fsys, name) })
}

// AddFunc registers a view whose document is made for each request, and gives its handle. f is called from many
// goroutines; an error of it is handled as that of a resource is, see [mcp.AddResource]. It panics as [Views.Add] does.
//
// Hosts may fetch a view before any of its tools runs and keep it: what belongs to one call comes in the tool's result.
func (v *Views) AddFunc(view *View, f func(ctx context.Context) (html string, err error)) *mcp.Registration[mcp.Resource] {
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

// clone returns a copy that shares nothing with what the caller may change later.
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

// Link returns a copy of a tool that says what it has to do with views, to be registered with [mcp.AddTool] or another
// function that takes tools.
//
//	onlyView := []apps.Visibility{apps.VisibilityApp}
//	mcp.AddTool(s, views.Link(&mcp.Tool{Name: "refresh"}, &apps.ToolUI{View: uri, Visibility: onlyView}), f)
//
// Link panics if the tool's view is not registered, or nobody may use the tool.
//
// Spec: SEP-1865, Resource Discovery.
func (v *Views) Link(t *mcp.Tool, u *ToolUI) *mcp.Tool {
	if t == nil || u == nil {
		panic("apps: Link: the tool or what it has to do with views is nil")
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
		return fmt.Errorf("no view %q is registered; register the view first", u.View)
	}
	if !u.ForModel() && !u.ForApp() {
		return fmt.Errorf("its visibility is %q, want %q, %q or both", u.Visibility, VisibilityModel, VisibilityApp)
	}
	for _, who := range u.Visibility {
		if who != VisibilityModel && who != VisibilityApp {
			return fmt.Errorf("its visibility holds %q, want %q or %q", who, VisibilityModel, VisibilityApp)
		}
	}
	return nil
}

// hideAppTools leaves the tools that are for views alone out of the lists of clients that show none.
func hideAppTools(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		page, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok || !slices.ContainsFunc(page.Tools, forAppOnly) {
			return res, err
		}
		shown := *page
		shown.Scope = mcp.CachePrivate // clients get different lists
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

// readHTML reads a file that is a view.
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

// checkHTML finds what keeps a text from being an HTML document that hosts show.
func checkHTML(html []byte) error {
	switch {
	case len(html) > maxView:
		return fmt.Errorf("the document has %d bytes or more, at most %d can be shown", len(html), maxView)
	case !utf8.Valid(html):
		return errors.New("the document is not UTF-8")
	case !doctype.Match(html[:min(len(html), 64<<10)]):
		return errors.New("the document does not begin with <!DOCTYPE html>")
	case bytes.IndexByte(html, 0) >= 0:
		return errors.New("the document holds a NUL")
	}
	return nil
}
