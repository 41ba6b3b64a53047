package doctor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	headerSession = "Mcp-Session-Id"
	typeJSON      = "application/json"
	typeEvents    = "text/event-stream"
	typeHTML      = "text/html"
)

const (
	// exchangeTimeout bounds a request with the read part of its response. A server answers
	// initialize at once; serverless platforms may start it first.
	exchangeTimeout = 20 * time.Second
	// maxRedirects limits the redirects that are followed, as a client does.
	maxRedirects = 5
	// maxRead bounds the read part of a body, in bytes: enough for a response to initialize.
	maxRead = 64 << 10
)

// A reply is a response with the beginning of its body.
type reply struct {
	url    *url.URL
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

// initializeBody returns the request that every server with sessions accepts, and that any other
// server refuses with a message.
func initializeBody() string {
	newest := ""
	for _, revision := range driver.Revisions() {
		if driver.HasSessions(revision) {
			newest = max(newest, revision)
		}
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,`+
		`"capabilities":{},"clientInfo":{"name":"patchbay doctor","version":%q}}}`, newest, build.Version())
}

// header returns a copy of the header that the target configures.
func (w *web) header() http.Header {
	header := w.target.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if w.url.User != nil && header.Get("Authorization") == "" {
		password, _ := w.url.User.Password()
		(&http.Request{Header: header}).SetBasicAuth(w.url.User.Username(), password)
	}
	return header
}

// initialize sends the first message of a client.
func (w *web) initialize(ctx context.Context, at *url.URL, header http.Header) (*reply, error) {
	return w.exchange(ctx, http.MethodPost, at, initializeBody(), header)
}

// exchange sends a request on a fresh connection, and follows no redirect.
func (w *web) exchange(
	ctx context.Context, method string, at *url.URL, body string, header http.Header,
) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set("Accept", typeJSON+", "+typeEvents)
	if method == http.MethodGet {
		req.Header.Set("Accept", typeEvents)
	}
	if body != "" {
		req.Header.Set("Content-Type", typeJSON)
	}
	base := w.Dialer.Net.NewBase()
	base.DisableKeepAlives = true
	began := time.Now()
	res, err := base.RoundTrip(req)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	defer res.Body.Close()
	a := &reply{url: at, status: res.StatusCode, header: res.Header, took: time.Since(began)}
	if method == http.MethodGet && a.kind() == typeEvents {
		return a, nil // a stream that may be endless
	}
	a.body = readStart(res.Body, a.kind() == typeEvents)
	return a, nil
}

// readStart reads the beginning of a body: of an event stream, which may be endless, up to the end
// of the first event with data. The data of an event that only states its id is empty.
func readStart(r io.Reader, isEvents bool) (body []byte) {
	for lines := bufio.NewReader(io.LimitReader(r, maxRead)); ; {
		line, err := lines.ReadBytes('\n')
		isEnd := isEvents && len(bytes.TrimSpace(line)) == 0 && dataOf(body) != nil
		if body = append(body, line...); err != nil || isEnd {
			return body
		}
	}
}

// kind returns the media type of a reply.
func (a *reply) kind() string {
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	return kind
}

// isEvents reports whether a body is an event stream, whatever its Content-Type is.
func (a *reply) isEvents() bool {
	field, _, _ := bytes.Cut(a.body, []byte(":"))
	return slices.Contains([]string{"", "data", "event", "id", "retry"}, string(field)) && len(a.body) > 0
}

// message returns the message of a body, whatever its Content-Type is, or nil.
func (a *reply) message() (m map[string]json.RawMessage) {
	text := dataOf(a.body)
	if text == nil {
		text = a.body
	}
	if json.Unmarshal(text, &m) != nil || string(m["jsonrpc"]) != `"2.0"` {
		return nil
	}
	return m
}

// dataOf returns the last data of the events in a body that is not empty, or nil.
func dataOf(body []byte) (data []byte) {
	for line := range bytes.Lines(body) {
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(bytes.TrimSpace(text)) > 0 {
			data = text
		}
	}
	return data
}

// statusText returns a status with its name.
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", status, http.StatusText(status)))
}
