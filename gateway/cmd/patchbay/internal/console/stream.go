package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// maxStreams bounds the open streams, each of which renders a page after each change.
	maxStreams = 16
	// streamPause is the least time between two renderings of a page: at most ten a second.
	streamPause = 100 * time.Millisecond
	// slowWrite is how long a browser may take to read an update. A slower browser fetches the page
	// again when it can, in place of updates that it cannot follow.
	slowWrite = 2 * time.Second
	// streamWriteTimeout ends the stream of a browser that reads nothing.
	streamWriteTimeout = 30 * time.Second
	// heartbeat keeps proxies from ending an idle stream, and detects browsers that left.
	heartbeat = 15 * time.Second
	// streamRetry is the pause after an error of the admin API.
	streamRetry = time.Second
	// maxEventLine limits an event of the admin API, in bytes.
	maxEventLine = 1 << 20
)

func (c *Console) streamRoutes() []*route {
	return []*route{{Path: "/stream", Role: RoleViewer, stream: true, serve: c.stream}}
}

// stream sends the changes of a page until the browser leaves. The query contains the page, with its
// own query, and the digest of the assets that the page was loaded with.
func (c *Console) stream(w http.ResponseWriter, r *request) {
	page, err := c.pageOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := &streamWriter{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // fails only in tests
	w.Header().Set("Content-Type", "text/event-stream")
	if version := r.URL.Query().Get("v"); version != "" && version != c.assets.digest {
		_ = out.reload() // an error means that the browser left
		return
	}
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		http.Error(w, fmt.Sprintf("%d pages are open already", maxStreams), http.StatusServiceUnavailable)
		return
	}
	if err := c.sendChanges(page, out); err != nil && r.Context().Err() == nil {
		c.opts.Logger.Debug("console: stream ended", "page", page.URL.Path, "error", err)
	}
}

// errSlow ends the stream of a browser that reads more slowly than its page changes.
var errSlow = errors.New("the browser reads too slowly")

// sendChanges sends the changes of a page until the browser leaves or its login ends.
func (c *Console) sendChanges(page *request, out *streamWriter) error {
	shown := sent{}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for pass := 1; ; pass++ {
		changed := c.wait() // before View, so that no change is lost
		if !c.identify(page) || !page.role.grants(page.route.Role) {
			return out.send("event: end\ndata:\n\n")
		}
		began := time.Now()
		every, err := c.sendPass(page, shown, pass, out)
		if errors.Is(err, errSlow) {
			return out.reload()
		}
		if err != nil {
			return err
		}
		if !sleep(page.Context(), time.Until(began.Add(streamPause))) {
			return nil
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
			case <-page.Context().Done():
				return nil
			}
		}
	}
}

// sendPass sends the fragments that changed since the last pass.
func (c *Console) sendPass(page *request, shown sent, pass int, out *streamWriter) (every time.Duration, err error) {
	v, err := page.route.View(page)
	var events []event
	if err == nil {
		every = v.Every
		events, err = shown.changes(c.pages, v.Fragments, pass)
	}
	if err != nil {
		text, _ := json.Marshal(errorText(err)) // never fails for a string
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
		c.overview.forget("")
		c.explorer.catalogues.forget("")
		c.Changed()
		if !sleep(ctx, streamRetry) {
			return
		}
	}
}

// readEvents reads the events of the admin API until they end.
func (c *Console) readEvents(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, adminURL+"/events", http.NoBody)
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
		var e struct{ Type, Server string }
		if json.Unmarshal([]byte(data), &e) == nil && e.Type != "call" {
			c.overview.forget(e.Server)
		}
		if slices.Contains([]string{"server", "catalogue", "drift", "config"}, e.Type) {
			c.explorer.catalogues.forget(e.Server)
		}
		c.Changed()
	}
	return lines.Err()
}

// pageOf returns the request for the page of a stream.
func (c *Console) pageOf(r *request) (*request, error) {
	u, err := url.Parse(localPath(r.URL.Query().Get("page")))
	if err != nil {
		return nil, err
	}
	for _, o := range c.paths[u.Path] {
		if o.View != nil && r.role.grants(o.Role) {
			page := *r
			page.Request, page.route = r.Clone(r.Context()), o
			page.URL, page.RequestURI = u, u.RequestURI()
			return &page, nil
		}
	}
	return nil, fmt.Errorf("no page %.200q", u.Path)
}
