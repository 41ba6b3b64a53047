package apps

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// allow shows a request of the page in the Inbox and beside the app, and waits for the person.
func (l *load) allow(ctx context.Context, q *question.Question) error {
	q.Origin = question.Origin{Server: l.Call.Server, Run: l.Call.Run, App: l.ID,
		Person: question.PersonOf(l.Call.Principal), Link: l.link(), About: "the app of " + l.Call.Tool}
	return l.screen.opts.Desk.Allow(ctx, q)
}

// allowTool asks the person before the page calls a tool of its server.
func (l *load) allowTool(ctx context.Context, t *mcp.Tool, args stdjson.RawMessage) error {
	call := &question.Stake{Server: l.Call.Server, Method: "tools/call", Target: t.Name, Arguments: l.mask(args),
		Client: "the page " + l.page.URI + " of the server"}
	if l.Call.Principal != nil {
		call.Principal = l.Call.Principal.Subject
	}
	var err error
	if call.Definition, err = stdjson.Marshal(t); err != nil {
		return err
	}
	err = call.FindPin(func(path string, v any) error {
		return l.screen.site.Call(ctx, l.Call.Principal, http.MethodGet, path, nil, v)
	})
	if err != nil {
		return fmt.Errorf("read the pin of %s: %w", t.Name, err)
	}
	return l.allow(ctx, &question.Question{Wish: "call the tool " + t.Name, Call: call})
}

// mask hides the secrets of the configuration in arguments that a page shows.
func (l *load) mask(args stdjson.RawMessage) stdjson.RawMessage {
	if l.screen.opts.Mask == nil {
		return args
	}
	return stdjson.RawMessage(l.screen.opts.Mask(string(args)))
}

// openLink asks the person, who opens the link.
func (l *load) openLink(ctx context.Context, link string) error {
	u, err := url.Parse(link)
	if err != nil {
		return err
	}
	return l.allow(ctx, &question.Question{Wish: "open a page", URL: u})
}

// download asks the person before it offers files to the browser.
func (l *load) download(ctx context.Context, files []apps.Download) error {
	if len(l.snapshot().Files)+len(files) > maxFiles {
		return fmt.Errorf("more than %d files", maxFiles)
	}
	if err := l.allow(ctx, &question.Question{Wish: "save files", Files: files}); err != nil {
		return err
	}
	saved := slices.Clone(files)
	for i := range saved {
		if d := &saved[i]; d.Data == nil && !isWeb(d.URI) {
			res, err := l.client.ReadResource(ctx, d.URI)
			if err != nil {
				return err
			}
			if len(res.Contents) != 1 || res.Contents[0] == nil {
				return fmt.Errorf("the resource %q has %d contents, want 1", d.URI, len(res.Contents))
			}
			d.Data = append([]byte(res.Contents[0].Text), res.Contents[0].Blob...)
		}
	}
	l.update(func(s *state) { s.Files = append(slices.Clone(s.Files), saved...) })
	return nil
}

func isWeb(uri string) bool {
	scheme, _, _ := strings.Cut(strings.ToLower(uri), ":")
	return scheme == "http" || scheme == "https"
}

// set changes the theme, the display mode and the width of the frame.
func (s *screen) set(r *page.Request) (*page.Outcome, error) {
	l, err := s.loadOf(r)
	if err != nil {
		return nil, err
	}
	old := l.snapshot()
	theme, width, mode := r.PostFormValue("theme"), r.PostFormValue("width"), apps.DisplayMode(r.PostFormValue("mode"))
	if theme != "light" && theme != "dark" || !slices.Contains(widths, width) || !slices.Contains(modes, mode) {
		return nil, page.Problem(http.StatusBadRequest, "invalid_settings",
			"invalid settings of the app: want a theme, a width and a mode")
	}
	change := &apps.Context{}
	if theme != old.Theme {
		change.Theme = theme
	}
	if mode != old.Mode {
		change.DisplayMode = mode
	}
	if width != old.Width {
		change.ContainerDimensions = dimensions(width)
	}
	if err := l.bridge.ContextChanged(r.Context(), change); err != nil {
		return nil, page.Problem(http.StatusConflict, "", "%s", err)
	}
	l.show(func(s *state) { s.Theme, s.Mode, s.Width = theme, mode, width })
	return &page.Outcome{Location: l.link(), Fragments: []page.Fragment{}}, nil
}
