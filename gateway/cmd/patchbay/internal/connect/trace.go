package connect

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// tracedTransport returns a transport whose messages are recorded and printed as the flags say.
func (d *Dialer) tracedTransport(transport mcp.SessionTransport, t *target.Target) mcp.SessionTransport {
	d.trace(transport, t)
	if d.Flags.Verbose {
		return &tracedHost{transport, tracer{d.IO.Err}}
	}
	return transport
}

// maxTraced bounds the shown part of a message, in bytes: an image would fill the screen.
const maxTraced = 32 << 10

// A tracer prints messages.
type tracer struct{ *term.Screen }

// A tracedCommand is a command whose messages are printed.
type tracedCommand struct {
	*mcp.CommandTransport
	screen tracer
}

func (t *tracedCommand) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return t.screen.traceCall(ctx, req, t.CommandTransport.RoundTrip)
}

func (t *tracedCommand) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error) {
	return t.screen.traceSession(t.CommandTransport.OpenSession(t.screen.traceReceived(ctx, receive)))
}

// A tracedURL is an HTTP transport whose messages are printed.
type tracedURL struct {
	*mcphttp.Transport
	screen tracer
}

func (t *tracedURL) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return t.screen.traceCall(ctx, req, t.Transport.RoundTrip)
}

func (t *tracedURL) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error) {
	return t.screen.traceSession(t.Transport.OpenSession(t.screen.traceReceived(ctx, receive)))
}

// A tracedHost is a transport to a host whose messages are printed.
type tracedHost struct {
	mcp.SessionTransport
	screen tracer
}

func (t *tracedHost) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return t.screen.traceCall(ctx, req, t.SessionTransport.RoundTrip)
}

func (t *tracedHost) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error) {
	return t.screen.traceSession(t.SessionTransport.OpenSession(t.screen.traceReceived(ctx, receive)))
}

// A tracedSession prints the messages of a session.
type tracedSession struct {
	driver.SessionConn
	screen tracer
}

func (l *tracedSession) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	l.screen.traced("→", req.Method, req.Params, "")
	began := time.Now()
	res, err := l.SessionConn.RoundTrip(ctx, req)
	l.screen.traceEnd(req.Method, began, res, err)
	return res, err
}

func (l *tracedSession) Send(ctx context.Context, m *jsonrpc.Message) error {
	l.screen.traced("→", "", jsonrpc.Append(nil, m), "")
	return l.SessionConn.Send(ctx, m)
}

func (s tracer) traceSession(l driver.SessionConn, err error) (driver.SessionConn, error) {
	if err != nil {
		s.Printf("← open session failed: %s", term.Clean(err.Error()))
		return nil, err
	}
	return &tracedSession{SessionConn: l, screen: s}, nil
}

// traceReceived returns the arguments for opening a session whose received messages are printed.
func (s tracer) traceReceived(
	ctx context.Context, receive func(m *jsonrpc.Message),
) (context.Context, func(m *jsonrpc.Message)) {
	receiver := driver.Receiver(ctx, receive)
	traced := func(of context.Context, m *jsonrpc.Message) {
		if m != nil {
			s.traced("←", "", jsonrpc.Append(nil, m), "")
		}
		receiver(of, m)
	}
	return driver.WithReceiver(ctx, traced), func(m *jsonrpc.Message) { traced(nil, m) }
}

// traceCall prints a request of the newest revision, its notifications and its result.
func (s tracer) traceCall(
	ctx context.Context, req *mcp.Request, call func(context.Context, *mcp.Request) (mcp.Result, error),
) (mcp.Result, error) {
	s.traced("→", req.Method, req.Params, "")
	if notify := req.Notify; notify != nil {
		req.Notify = func(ctx context.Context, method string, params stdjson.RawMessage) error {
			s.traced("←", method, params, "")
			return notify(ctx, method, params)
		}
	}
	began := time.Now()
	res, err := call(ctx, req)
	if err != nil {
		s.traceEnd(req.Method, began, nil, err)
		return nil, err
	}
	raw, encode := req.EncodeResult(res)
	if encode != nil {
		raw = []byte(encode.Error())
	}
	s.traceEnd(req.Method, began, &jsonrpc.Message{Result: raw}, nil)
	return res, nil
}

func (s tracer) traceEnd(method string, began time.Time, res *jsonrpc.Message, err error) {
	took := fmt.Sprintf(" (%s)", time.Since(began).Round(10*time.Microsecond))
	var rpc *mcp.Error
	switch {
	case err == nil && res.Error == nil:
		s.traced("←", method+" result", res.Result, took)
		return
	case err == nil:
		rpc = res.Error
	case !errors.As(err, &rpc):
		s.Printf("← %s failed: %s%s", term.CleanLine(method), term.Clean(err.Error()), took)
		return
	}
	s.traced("←", method+" error", jsonrpc.Append(nil, &jsonrpc.Message{Error: rpc}), took)
}

// traced prints JSON, up to maxTraced.
func (s tracer) traced(arrow, what string, text []byte, after string) {
	more := ""
	if len(text) > maxTraced {
		more = fmt.Sprintf("… (%s in total)", term.FormatBytes(len(text)))
		text = text[:maxTraced]
	}
	if what != "" {
		arrow += " " + term.CleanLine(what)
	}
	s.Printf("%s %s%s%s", arrow, term.CleanJSON(string(text)), more, after)
}
