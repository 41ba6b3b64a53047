package apps

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An ask is a request of the page that waits for the person. It is immutable.
type ask struct {
	ID     int
	Title  string
	Text   string          // the arguments of a tool
	URL    string          // of a link, whole
	Files  []apps.Download // to be saved
	answer chan bool
}

var errRefused = errors.New("the person refused")

// confirm shows a request and waits for the person.
func (l *load) confirm(ctx context.Context, a *ask) error {
	a.answer = make(chan bool, 1)
	l.update(func(s *state) {
		s.Asked++
		a.ID = s.Asked
		s.Asks = append(slices.Clone(s.Asks), a)
	})
	defer l.remove(a)
	select {
	case yes := <-a.answer:
		if yes {
			return nil
		}
		return errRefused
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// remove withdraws a request.
func (l *load) remove(a *ask) {
	l.update(func(s *state) {
		s.Asks = slices.DeleteFunc(slices.Clone(s.Asks), func(other *ask) bool { return other == a })
		s.Asked++
	})
}

// answer answers a request of the page.
func (s *screen) answer(r *page.Request) (*page.Outcome, error) {
	l, err := s.loadOf(r)
	if err != nil {
		return nil, err
	}
	id, _ := strconv.Atoi(r.PostFormValue("ask"))
	asks := l.snapshot().Asks
	at := slices.IndexFunc(asks, func(a *ask) bool { return a.ID == id })
	action := r.PostFormValue("action")
	switch {
	case at < 0:
		return nil, problem(http.StatusConflict, "the request was answered or withdrawn")
	case action != "allow" && action != "refuse":
		return nil, problem(http.StatusBadRequest, "invalid answer %.20q: must be allow or refuse", action)
	}
	select {
	case asks[at].answer <- action == "allow": // buffered
	default: // another page answered first
	}
	return &page.Outcome{Location: fmt.Sprintf("/apps?load=%d", l.ID), Fragments: []page.Fragment{}}, nil
}

// allowTool asks the person before the page calls a tool of its server.
func (l *load) allowTool(ctx context.Context, t *mcp.Tool, args stdjson.RawMessage) error {
	return l.confirm(ctx, &ask{Title: "The app asks to call the tool " + t.Name + ".", Text: page.Indent(args)})
}

// openLink asks the person, who opens the link.
func (l *load) openLink(ctx context.Context, url string) error {
	return l.confirm(ctx, &ask{Title: "The app asks to open a page.", URL: url})
}

// download asks the person before it offers files to the browser.
func (l *load) download(ctx context.Context, files []apps.Download) error {
	if len(l.snapshot().Files)+len(files) > maxFiles {
		return fmt.Errorf("more than %d files", maxFiles)
	}
	if err := l.confirm(ctx, &ask{Title: "The app asks to save files.", Files: files}); err != nil {
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
		return nil, problem(http.StatusBadRequest, "invalid settings of the app: want a theme, a width and a mode")
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
		return nil, problem(http.StatusConflict, "%s", err)
	}
	l.show(func(s *state) { s.Theme, s.Mode, s.Width = theme, mode, width })
	return &page.Outcome{Location: fmt.Sprintf("/apps?load=%d", l.ID), Fragments: []page.Fragment{}}, nil
}
