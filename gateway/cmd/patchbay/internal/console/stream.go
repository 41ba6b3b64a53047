package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/adminclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	// maxStreams bounds the open streams, each of which renders a page after each change.
	maxStreams = 16
	// streamPause is the least time between two renderings of a page: at most ten a second.
	streamPause = 100 * time.Millisecond
	// slowWrite is how long a browser may take to read an update. A slower browser fetches the page
	// again when it can, in place of updates that it cannot follow.
	slowWrite = 2 * time.Second
	// streamWriteTimeout ends the stream of a browser that does not read.
	streamWriteTimeout = 30 * time.Second
	// heartbeat keeps proxies from ending an idle stream, and detects browsers that left.
	heartbeat = 15 * time.Second
	// streamRetry is the pause after an error of the admin API.
	streamRetry = time.Second
	// maxEventLine limits an event of the admin API, in bytes.
	maxEventLine = 1 << 20
)

func (c *Console) streamRoutes() []*page.Route {
	return []*page.Route{{Path: "/stream", Role: page.RoleViewer, Stream: true, Serve: c.stream}}
}

// stream sends the changes of a page until the browser leaves. The query contains the page, with
// its own query, and the digest of the assets that the page was loaded with.
func (c *Console) stream(w http.ResponseWriter, r *page.Request) error {
	shown, err := c.pageOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	out := &streamWriter{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // fails only in tests
	w.Header().Set("Content-Type", "text/event-stream")
	if version := r.URL.Query().Get("v"); version != "" && version != c.assets.digest {
		_ = out.reload() // an error means that the browser left
		return nil
	}
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		http.Error(w, fmt.Sprintf("%d pages are open already", maxStreams), http.StatusServiceUnavailable)
		return nil
	}
	if err := c.sendChanges(shown, out); err != nil && r.Context().Err() == nil {
		c.opts.Logger.Debug("console: stream ended", "page", shown.URL.Path, "error", err)
	}
	return nil
}

// A shownPage is the page of a stream.
type shownPage struct {
	*page.Request
	route *page.Route
	sent  sent
}

// errSlow ends the stream of a browser that reads more slowly than its page changes.
var errSlow = errors.New("the browser reads too slowly")

// sendChanges sends the changes of a page until the browser leaves or its login ends.
func (c *Console) sendChanges(p *shownPage, out *streamWriter) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for pass := 1; ; pass++ {
		changed := c.site.Wait() // before View, so that no change is lost
		if !c.identify(p.Request) || !p.Role.Grants(p.route.Role) {
			return out.send("event: end\ndata:\n\n")
		}
		began := time.Now()
		every, err := c.sendPass(p, pass, out)
		if errors.Is(err, errSlow) {
			return out.reload()
		}
		if err != nil {
			return err
		}
		if !sleep(p.Context(), time.Until(began.Add(streamPause))) {
			return c.left(p, out)
		}
		var tick <-chan time.Time
		if every > 0 {
			tick = time.After(every)
		}
		for waiting := true; waiting; {
			select {
			case <-changed:
				waiting = false
			case <-tick:
				waiting = false
			case <-beat.C:
				if err := out.send(": \n\n"); err != nil {
					return err
				}
			case <-p.Context().Done():
				return c.left(p, out)
			}
		}
	}
}

// left ends a stream whose request has ended: the browser left, or the login ended.
func (c *Console) left(p *shownPage, out *streamWriter) error {
	if c.identify(p.Request) {
		return nil
	}
	return out.send("event: end\ndata:\n\n")
}

// sendPass sends the fragments that changed since the last pass.
func (c *Console) sendPass(p *shownPage, pass int, out *streamWriter) (every time.Duration, err error) {
	var v *page.View
	var events []event
	if err = checkServers(p.Request, p.route); err == nil {
		v, err = p.route.View(p.Request)
	}
	if err == nil {
		every = v.Every
		badges := c.badges(p.Request)
		all := append(fragmentsOf(badges, p.URL.Path), v.Fragments...)
		events, err = p.sent.changes(c.site, all, pass)
	}
	if err != nil {
		text, _ := json.Marshal(page.ErrorText(err)) // never fails for a string
		return streamRetry, out.send("event: problem\ndata: " + string(text) + "\n\n")
	}
	var b strings.Builder
	b.WriteString("event: pass\ndata:\n\n") // ends the message about an earlier problem
	for i := range events {
		text, err := json.Marshal(&events[i])
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(&b, "data: %s\n\n", text)
	}
	if len(events) == 0 && pass > 1 {
		return every, nil
	}
	return every, out.send(b.String())
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// A streamWriter writes to a browser.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// send writes events. It returns errSlow if the browser took long to read them.
func (o *streamWriter) send(text string) error {
	began := time.Now()
	_ = o.control.SetWriteDeadline(began.Add(streamWriteTimeout)) // fails only in tests
	if _, err := o.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := o.control.Flush(); err != nil {
		return err
	}
	if time.Since(began) > slowWrite {
		return errSlow
	}
	return nil
}

// reload tells the browser to fetch the page again.
func (o *streamWriter) reload() error {
	if err := o.send("event: reload\ndata:\n\n"); !errors.Is(err, errSlow) {
		return err
	}
	return nil
}

// follow tells the streams about the events of the admin API until ctx ends.
func (c *Console) follow(ctx context.Context) {
	for {
		if err := c.readEvents(ctx); err != nil && ctx.Err() == nil {
			c.opts.Logger.Warn("console: events of the gateway ended", "error", err)
		}
		c.hear(page.Event{})
		if !sleep(ctx, streamRetry) {
			return
		}
	}
}

// hear tells the screens about an event.
func (c *Console) hear(e page.Event) {
	for _, s := range c.screens {
		if s.Heard != nil {
			s.Heard(e)
		}
	}
	c.Changed()
}

// readEvents reads the events of the admin API until they end.
func (c *Console) readEvents(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, adminclient.URL+"/events", http.NoBody)
	if err != nil {
		return err
	}
	res, err := c.opts.Admin(nil).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEventLine)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e page.Event
		if json.Unmarshal([]byte(data), &e) == nil {
			e.Data = json.RawMessage(data)
			c.hear(e)
		}
	}
	return lines.Err()
}

// pageOf returns the page of a stream.
func (c *Console) pageOf(r *page.Request) (*shownPage, error) {
	u, err := url.Parse(localPath(r.URL.Query().Get("page")))
	if err != nil {
		return nil, err
	}
	for _, o := range c.paths[u.Path] {
		if o.View != nil && r.Role.Grants(o.Role) {
			own := *r
			own.Request = r.Clone(r.Context())
			own.URL, own.RequestURI, own.Live = u, u.RequestURI(), true
			own.Form, own.PostForm = nil, nil // the values of the page replace the values of the stream
			return &shownPage{&own, o, sent{}}, nil
		}
	}
	return nil, fmt.Errorf("no page %.200q", u.Path)
}
