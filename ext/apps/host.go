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
	// MaxPage is the largest size of a page, in bytes. Default: 8 MiB.
	MaxPage int
	// InsecureLocal lets pages use origins of the user's machine and local network, such as
	// "http://localhost:3000", if the server asks for them. It is meant for the development of
	// apps: services there may trust the page's requests as the user's. Default: such origins are
	// dropped, judging by their names; a public name may resolve to a private address.
	InsecureLocal bool
	// Logger receives dropped and refused messages, and every request of a page. Default:
	// slog.Default().
	Logger *slog.Logger
}

// A Host adds to an [mcp.Client] the features that a host with views needs: which tools the model
// may see, and the pages of tools. It is safe for concurrent use.
type Host struct {
	client *mcp.Client
	opts   HostOptions

	listing chan struct{} // buffered (1): a semaphore for list

	mu     sync.Mutex // guards the fields below
	tools  map[string]*mcp.Tool
	listed time.Time // when tools was set
}

// minListInterval limits how often an unknown name makes the host list the tools, because pages
// choose the names.
const minListInterval = 10 * time.Second

// NewHost returns a Host for a client that was created with the options of [Declare]. opts may be
// nil.
func NewHost(c *mcp.Client, opts *HostOptions) *Host {
	h := &Host{client: c, listing: make(chan struct{}, 1)}
	if opts != nil {
		h.opts = *opts
	}
	h.opts.MaxPage = cmp.Or(h.opts.MaxPage, maxView)
	h.opts.Logger = cmp.Or(h.opts.Logger, slog.Default())
	return h
}

// ModelTools lists the server's tools and returns the tools that the model may see, without those
// whose metadata is malformed. Call it again when the tools changed ([mcp.EventToolsChanged]). The
// listed tools are also the tools that pages may call.
//
// Spec: SEP-1865, Visibility.
func (h *Host) ModelTools(ctx context.Context) ([]*mcp.Tool, error) {
	return h.list(ctx, func() bool { return false })
}

// list lists the tools, unless isDone reports that another goroutine did so.
func (h *Host) list(ctx context.Context, isDone func() bool) (forModel []*mcp.Tool, err error) {
	select {
	case h.listing <- struct{}{}:
		defer func() { <-h.listing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if isDone() {
		return nil, nil
	}
	tools := map[string]*mcp.Tool{}
	for t, err := range h.client.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		u, err := ToolUIOf(t)
		if err != nil {
			h.opts.Logger.WarnContext(ctx, "apps: tool ignored", "error", err)
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

func (h *Host) tool(ctx context.Context, name string) (*mcp.Tool, error) {
	t, ok := h.known(name)
	if ok {
		return t, nil
	}
	_, err := h.list(ctx, func() bool {
		t, ok = h.known(name)
		return ok
	})
	if err != nil {
		return nil, err
	}
	t, _ = h.known(name)
	return t, nil
}

// known returns a listed tool. ok reports whether the answer is valid: if the tool is unknown, that
// requires a recent list.
func (h *Host) known(name string) (t *mcp.Tool, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.tools[name]
	return t, t != nil || h.tools != nil && time.Since(h.listed) < minListInterval
}

// Page reads the view of a tool. It returns nil without an error if the tool is without a view. It
// returns an error if the server does, or if the view is invalid: it has the wrong scheme or MIME
// type, several contents, too many bytes, or malformed metadata.
//
// A host may read views before their tools run, and cache them.
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

// declared returns the frame of a view from the list of resources; the zero Frame if the view is
// not listed.
func (h *Host) declared(ctx context.Context, uri string) (f Frame, err error) {
	for r, err := range h.client.Resources(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return f, err
			}
			h.opts.Logger.WarnContext(ctx, "apps: the views cannot be listed", "error", err)
			return f, nil // the page gets fewer permissions
		}
		if r.URI == uri {
			_, err = decodeMeta(r.Meta, &f)
			return f, err
		}
	}
	return f, nil
}
