package capture

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxEnvelope limits the part of a body that is read for the id of its message, in bytes: the id
// is before the params.
const maxEnvelope = 1 << 10

// Observe returns a client whose requests are exchanges of the hop http, if the context is that of
// a function for [Ring.Dial]; otherwise it returns client. newBase makes the transport in place of
// a nil client.
func Observe(ctx context.Context, client *http.Client, newBase func() *http.Transport) *http.Client {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	if c == nil {
		return client
	}
	observed := http.Client{}
	if client != nil {
		observed = *client
	}
	if observed.Transport == nil {
		observed.Transport = newBase()
	}
	c.observed.Store(true)
	observed.Transport = &httpTransport{connection: c, base: observed.Transport}
	return &observed
}

type connectionKey struct{}

// An httpTransport records HTTP requests, but neither bodies nor values of headers that may be
// secret. Their cause is the exchange of the message that a request carries, or the latest request.
type httpTransport struct {
	connection *connection
	base       http.RoundTripper
	login      *loginBodies // nil for a request of the hop http
}

// CloseIdleConnections closes the idle connections of the base.
func (t *httpTransport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends a request. Without a reader of frames, a successful request with a message is not
// recorded, because the exchange of the message is enough.
func (t *httpTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := t.connection
	begin := time.Now()
	late := req.Body != nil && !c.ring.Keeps() && t.login == nil
	var id uint64
	if !late {
		id = t.begin(req, begin)
	}
	res, err := t.base.RoundTrip(req)
	if late {
		if err == nil && res.StatusCode < http.StatusBadRequest {
			return res, nil
		}
		id = t.begin(req, begin)
	}
	if err != nil {
		c.ring.add(id, Frame{Kind: Decision}, t.clean([]byte(err.Error())), nil)
		status := StatusFailed
		if req.Context().Err() != nil {
			status = StatusCancelled
		}
		c.ring.end(id, status)
		return nil, err
	}
	status := httpStatus(res.StatusCode)
	now := time.Now()
	c.ring.update(id, func(x *slot) { x.FirstByte = x.since(now) })
	c.ring.write(id, Frame{Kind: Header, Time: now}, nil, func(to []byte) []byte {
		return t.clean(appendHeader(to, status, res.Header))
	})
	if res.Body == nil || res.Body == http.NoBody || res.StatusCode == http.StatusSwitchingProtocols {
		c.ring.end(id, status)
		return res, nil
	}
	body := &countedBody{ReadCloser: res.Body, keeps: t.login != nil && c.ring.Keeps()}
	res.Body, body.end = body, func(n int64) {
		if t.login != nil {
			c.ring.add(id, Frame{Kind: Body, Size: int(n)}, t.login.received(req.Method, body.kept), nil)
		} else {
			c.ring.update(id, func(x *slot) { x.Bytes += n })
		}
		c.ring.end(id, status)
	}
	return res, nil
}

// begin begins the exchange of a request.
func (t *httpTransport) begin(req *http.Request, queued time.Time) uint64 {
	c := t.connection
	address := c.address(req.URL)
	cause, revision := t.cause(req)
	hop, bytes := HTTP, max(req.ContentLength, 0)
	if t.login != nil {
		hop, bytes = OAuth, 0 // add counts the public parts of the body
		t.login.authorized(req)
	}
	id := c.ring.begin(&Exchange{Cause: cause, Hop: hop, Revision: revision, Server: c.server, Caller: c.caller,
		Method: req.Method, Target: address, Queued: queued, Sent: 1, Bytes: bytes})
	c.ring.write(id, Frame{Kind: Header, Sent: true, Time: queued}, nil, func(to []byte) []byte {
		return appendHeader(to, req.Method+" "+address, req.Header)
	})
	if t.login == nil {
		return id
	}
	if text := bodyOf(req, maxLoginBody); len(text) > 0 {
		c.ring.add(id, Frame{Kind: Body, Sent: true, Size: len(text)}, t.login.sent(text), nil)
	}
	return id
}

// address returns the public text of a URL, and caches the text: most requests repeat their URL.
func (c *connection) address(u *url.URL) string {
	if last := c.target.Load(); last != nil && last.url == *u {
		return last.text
	}
	shown := &publicURL{*u, target.PublicURL(u.String())}
	c.target.Store(shown)
	return shown.text
}

// A publicURL is a URL and its text without secrets.
type publicURL struct {
	url  url.URL
	text string
}

// bodyOf returns the beginning of the body of a request, or nil if the body is not in memory.
func bodyOf(req *http.Request, most int64) []byte {
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	if req.ContentLength > 0 {
		most = min(most, req.ContentLength)
	}
	text := make([]byte, most)
	n, _ := io.ReadFull(body, text)
	return text[:n]
}

// clean returns a text without the secrets of a request of a login.
func (t *httpTransport) clean(text []byte) []byte {
	if t.login == nil {
		return text
	}
	return t.login.clean(text)
}

// cause returns the exchange that caused a request, or 0, and the revision of the connection.
func (t *httpTransport) cause(req *http.Request) (id uint64, revision string) {
	c := t.connection
	var of jsonrpc.ID
	if raw, ok := rawjson.Get(bodyOf(req, maxEnvelope), "id"); ok {
		_ = of.UnmarshalJSON(raw) // without an id the latest exchange is the cause
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.sent[of].id, c.received[of], c.latest()), c.revision
}

// A countedBody counts the bytes of a body up to its end.
type countedBody struct {
	io.ReadCloser
	n     atomic.Int64
	once  sync.Once
	end   func(n int64)
	keeps bool
	kept  []byte // the beginning, at most one byte more than maxLoginBody; of the goroutine that reads
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	if b.keeps {
		b.kept = append(b.kept, p[:min(n, maxLoginBody+1-len(b.kept))]...)
	}
	if err != nil {
		b.once.Do(func() { b.end(b.n.Load()) })
	}
	return n, err
}

// Close closes the body, of which a part may be unread.
func (b *countedBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() { b.end(b.n.Load()) })
	return err
}

// publicHeaders are the headers whose values are shown. The others may be credentials: users
// configure headers, and a list of secret headers could never be complete.
var publicHeaders = []string{"Accept", "Accept-Encoding", "Allow", "Cache-Control", "Content-Encoding",
	"Content-Length", "Content-Type", "Date", "Last-Event-Id", "Location", "Mcp-Method", "Mcp-Name",
	"Mcp-Protocol-Version", "Mcp-Session-Id", "Retry-After", "Server", "Transfer-Encoding", "User-Agent", "Vary",
	"Www-Authenticate"}
