package mcptest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A checker validates the messages that a server sends to an [mcp.Client].
type checker struct {
	t      testing.TB
	on     Combination
	schema *Schema

	mu      sync.Mutex // guards the field below
	methods map[jsonrpc.ID]string
}

// checkedTransport returns a client's transport to h whose messages are validated, if there are
// schemas. Those of extensions are not part of the schemas: with extensions, nothing is validated.
func checkedTransport(t testing.TB, h mcp.Handler, on Combination, opts *mcp.ClientOptions) mcp.Transport {
	t.Helper()
	k := &checker{t: t, on: on, schema: openSchema(t, on.Revision), methods: map[jsonrpc.ID]string{}}
	if k.schema == nil || opts != nil && len(opts.Extensions) > 0 {
		return Transport(t, h, on.Transport)
	}
	switch on.Transport {
	case HTTP:
		return overNetwork(t, mcphttp.NewHandler(h, &mcphttp.Options{Logger: logger(t)}), k.check)
	case Stdio:
		client, server := stdio()
		return overStream(t, h, &checkedConn{client, k}, server)
	}
	client, server := mcp.Pipe()
	return overStream(t, h, &checkedConn{client, k}, server)
}

func (k *checker) sent(m *jsonrpc.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.Kind() == jsonrpc.Request {
		k.methods[m.ID] = m.Method
	}
}

func (k *checker) received(m *jsonrpc.Message) {
	for _, one := range m.Batch {
		k.received(one)
	}
	if m.Kind() == jsonrpc.Batch {
		return
	}
	k.mu.Lock()
	method := k.methods[m.ID]
	if m.Kind() == jsonrpc.Response {
		delete(k.methods, m.ID)
	}
	k.mu.Unlock()
	if err := k.schema.Validate(m, method); err != nil {
		k.t.Errorf("%s: %v", k.on, err)
	}
}

// A checkedConn is the client's end of a stream.
type checkedConn struct {
	mcp.Conn
	checker *checker
}

func (c *checkedConn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	m, err := c.Conn.Read(ctx)
	if err == nil {
		c.checker.received(m)
	}
	return m, err
}

func (c *checkedConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	c.checker.sent(m)
	return c.Conn.Write(ctx, m)
}

// check makes an HTTP client validate what it receives.
func (k *checker) check(client *http.Client) { client.Transport = &checkedHTTP{client.Transport, k} }

type checkedHTTP struct {
	next    http.RoundTripper
	checker *checker
}

// CloseIdleConnections closes those of the network.
func (c *checkedHTTP) CloseIdleConnections() {
	(&http.Client{Transport: c.next}).CloseIdleConnections()
}

func (c *checkedHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		if m, err := jsonrpc.Decode(body); err == nil {
			c.checker.sent(m)
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	res, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); media {
	case "text/event-stream":
		res.Body = newCheckedEvents(c.checker, res.Body)
	case "application/json":
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			return nil, err
		}
		if m, err := jsonrpc.Decode(body); err == nil {
			c.checker.received(m)
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
	}
	return res, nil
}

// A checkedEvents is the body of an event stream. What is read from it also goes to a goroutine that
// validates the events, and ends with Close.
type checkedEvents struct {
	io.Reader
	body io.Closer
	tee  *io.PipeWriter
	done sync.WaitGroup
}

func newCheckedEvents(k *checker, body io.ReadCloser) *checkedEvents {
	copied, tee := io.Pipe()
	c := &checkedEvents{Reader: io.TeeReader(body, tee), body: body, tee: tee}
	c.done.Go(func() {
		events := sse.NewReader(copied, maxEvent)
		for {
			e, err := events.Next()
			if err != nil {
				_, _ = io.Copy(io.Discard, copied) // the client reports the error
				return
			}
			if m, err := jsonrpc.Decode(e.Data); err == nil && e.Type != "endpoint" {
				k.received(m)
			}
		}
	})
	return c
}

func (c *checkedEvents) Close() error {
	err := errors.Join(c.tee.Close(), c.body.Close())
	c.done.Wait()
	return err
}
