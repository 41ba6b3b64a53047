package apps

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// HostOptions configures a [Host]. The zero value is right for most hosts.
type HostOptions struct {
	// MaxPage is the number of bytes of a page that are taken. Default: 8 MiB.
	MaxPage int
	// InsecureLocal lets pages use origins of the user's own machine and network, such as "http://localhost:3000", when
	// their server asks for it. It is for the development of apps: what listens there takes the page's requests for the
	// user's. Default: such origins are dropped, as far as their names tell: a public name may lead to a private address.
	InsecureLocal bool
	// Logger takes what is dropped and refused, and every request of a page. Default: slog.Default().
	Logger *slog.Logger
}

// A Host is what a client that shows views needs beside an [mcp.Client]: what the model may see of the server, and its
// pages. It is safe for concurrent use.
type Host struct {
	client *mcp.Client
	opts   HostOptions

	turn chan struct{} // holds a token while the tools are listed

	mu     sync.Mutex // guards the fields below
	tools  map[string]*mcp.Tool
	listed time.Time // when they were listed last
}

// listEvery is how often a name that is not known has the tools listed anew: pages choose the names.
const listEvery = 10 * time.Second

// NewHost returns the host for one client, whose options come from [Declare]. The options may be nil.
func NewHost(c *mcp.Client, opts *HostOptions) *Host {
	h := &Host{client: c, turn: make(chan struct{}, 1)}
	if opts != nil {
		h.opts = *opts
	}
	h.opts.MaxPage = cmp.Or(h.opts.MaxPage, maxView)
	h.opts.Logger = cmp.Or(h.opts.Logger, slog.Default())
	return h
}

// ModelTools lists the server's tools and gives those that the model may see. Tools whose metadata is malformed are left
// out. It is called again when the tools have changed ([mcp.EventToolsChanged]): what it finds is also what pages may
// call.
//
// Spec: SEP-1865, Visibility.
func (h *Host) ModelTools(ctx context.Context) ([]*mcp.Tool, error) {
	if err := h.take(ctx); err != nil {
		return nil, err
	}
	defer h.give()
	return h.list(ctx)
}

// take waits for the turn.
func (h *Host) take(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *Host) give() { <-h.turn }

// list lists the tools. It is called with the turn.
func (h *Host) list(ctx context.Context) (forModel []*mcp.Tool, err error) {
	tools := map[string]*mcp.Tool{}
	for t, err := range h.client.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		u, err := ToolUIOf(t)
		if err != nil {
			h.opts.Logger.WarnContext(ctx, "apps: tool left out", "reason", err)
			continue
		}
		tools[t.Name] = t
		if u.ForModel() {
			forModel = append(forModel, t)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tools, h.listed = tools, time.Now()
	return forModel, nil
}

// tool returns a tool of the server by its name. nil means that there is none.
func (h *Host) tool(ctx context.Context, name string) (*mcp.Tool, error) {
	if t, sure := h.known(name); sure {
		return t, nil
	}
	if err := h.take(ctx); err != nil {
		return nil, err
	}
	defer h.give()
	if t, sure := h.known(name); sure {
		return t, nil // somebody else has listed them
	}
	if _, err := h.list(ctx); err != nil {
		return nil, err
	}
	t, _ := h.known(name)
	return t, nil
}

// known returns a tool that was listed. Not to know it is sure if the tools were listed just now.
func (h *Host) known(name string) (t *mcp.Tool, sure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.tools[name]
	return t, t != nil || h.tools != nil && time.Since(h.listed) < listEvery
}

// Page reads the view of a tool; nil if the tool has none. An error is the server's, or says why its view cannot be shown:
// another scheme or type than a view's, several contents, too many bytes, malformed metadata.
//
// Hosts may read views before their tools run, and keep them.
//
// Spec: SEP-1865, Resource Discovery, Metadata Location.
func (h *Host) Page(ctx context.Context, tool string) (*Page, error) {
	t, err := h.tool(ctx, tool)
	if err != nil {
		return nil, fmt.Errorf("apps: tool %.128q: %w", tool, err)
	}
	if t == nil {
		return nil, fmt.Errorf("apps: the server has no tool %.128q", tool)
	}
	u, err := ToolUIOf(t)
	if err != nil || u.View == "" {
		return nil, err
	}
	p, err := h.read(ctx, u.View)
	if err != nil {
		return nil, fmt.Errorf("apps: view %.128q of tool %.128q: %w", u.View, tool, err)
	}
	return p, nil
}

func (h *Host) read(ctx context.Context, uri string) (*Page, error) {
	res, err := h.client.ReadResource(ctx, uri)
	if err != nil {
		return nil, err
	}
	p, framed, err := pageFrom(uri, res, h.opts.MaxPage)
	if err != nil {
		return nil, err
	}
	if !framed {
		if p.Frame, err = h.declared(ctx, uri); err != nil {
			return nil, err
		}
	}
	p.Dropped = p.Frame.clean(h.opts.InsecureLocal)
	h.opts.Logger.InfoContext(ctx, "apps: page", "uri", uri, "bytes", len(p.HTML), "digest", p.Digest(),
		"policy", p.Policy(), "allow", p.Allow(), "dropped", p.Dropped)
	return p, nil
}

// declared returns what the list of resources says of a view's frame. A view that is not listed needs nothing.
func (h *Host) declared(ctx context.Context, uri string) (f Frame, err error) {
	for r, err := range h.client.Resources(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return f, err
			}
			h.opts.Logger.WarnContext(ctx, "apps: the server does not list its views", "error", err)
			return f, nil // less is granted, nothing is broken
		}
		if r.URI == uri {
			f, _, err := frameFrom(r.Meta)
			return f, err
		}
	}
	return f, nil
}
