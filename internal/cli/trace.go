package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// maxTraced bounds how much of one message is shown, in bytes: a picture fills a screen for minutes.
const maxTraced = 32 << 10

// A tracedCommand is a command whose messages are shown.
type tracedCommand struct {
	*mcp.ServerCommand
	screen *screen
}

// RoundTrip shows a request and what comes of it.
func (t *tracedCommand) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return t.screen.traceCall(ctx, req, t.ServerCommand.RoundTrip)
}

// OpenSession shows what travels in a session.
func (t *tracedCommand) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (mcp.SessionLink, error) {
	return t.screen.traceLink(t.ServerCommand.OpenSession(ctx, t.screen.traceReceived(receive)))
}

// A tracedURL is a URL whose messages are shown.
type tracedURL struct {
	*mcphttp.Transport
	screen *screen
}

// RoundTrip shows a request and what comes of it.
func (t *tracedURL) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return t.screen.traceCall(ctx, req, t.Transport.RoundTrip)
}

// OpenSession shows what travels in a session.
func (t *tracedURL) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (mcp.SessionLink, error) {
	return t.screen.traceLink(t.Transport.OpenSession(ctx, t.screen.traceReceived(receive)))
}

// A tracedLink shows what travels in a session.
type tracedLink struct {
	mcp.SessionLink
	screen *screen
}

// RoundTrip shows a request and what comes of it.
func (l *tracedLink) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	l.screen.traced("→", req.Method, req.Params, "")
	began := time.Now()
	res, err := l.SessionLink.RoundTrip(ctx, req)
	l.screen.traceEnd(req.Method, began, res, err)
	return res, err
}

// Send shows a notification or an answer.
func (l *tracedLink) Send(ctx context.Context, m *jsonrpc.Message) error {
	l.screen.traceMessage("→", m)
	return l.SessionLink.Send(ctx, m)
}

func (s *screen) traceLink(l mcp.SessionLink, err error) (mcp.SessionLink, error) {
	if err != nil {
		s.printf("← no session: %s", clean(err.Error()))
		return nil, err
	}
	return &tracedLink{SessionLink: l, screen: s}, nil
}

func (s *screen) traceReceived(receive func(m *jsonrpc.Message)) func(m *jsonrpc.Message) {
	return func(m *jsonrpc.Message) {
		if m != nil {
			s.traceMessage("←", m)
		}
		receive(m)
	}
}

// traceCall shows a request in the modern form, its notifications and its result.
func (s *screen) traceCall(ctx context.Context, req *mcp.Request, call func(context.Context, *mcp.Request) (mcp.Result, error)) (mcp.Result, error) {
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

// traceEnd shows what came of a request.
func (s *screen) traceEnd(method string, began time.Time, res *jsonrpc.Message, err error) {
	took := fmt.Sprintf(" (%s)", time.Since(began).Round(10*time.Microsecond))
	var rpc *mcp.Error
	switch {
	case err == nil && res.Error == nil:
		s.traced("←", method+" result", res.Result, took)
		return
	case err == nil:
		rpc = res.Error
	case !errors.As(err, &rpc):
		s.printf("← %s failed: %s%s", cleanLine(method), clean(err.Error()), took)
		return
	}
	s.traced("←", method+" error", appendError(nil, rpc), took)
}

func appendError(dst []byte, e *mcp.Error) []byte {
	encoded := jsonrpc.Append(nil, jsonrpc.NewErrorResponse(jsonrpc.ID{}, e))
	return append(dst, encoded...)
}

// traceMessage shows a message that stands alone.
func (s *screen) traceMessage(arrow string, m *jsonrpc.Message) {
	s.traced(arrow, "", jsonrpc.Append(nil, m), "")
}

// traced shows JSON, as much as there is room for.
func (s *screen) traced(arrow, what string, text []byte, after string) {
	more := ""
	if len(text) > maxTraced {
		more = fmt.Sprintf("… (%s in all)", bytesOf(len(text)))
		text = text[:maxTraced]
	}
	if what != "" {
		arrow += " " + cleanLine(what)
	}
	s.printf("%s %s%s%s", arrow, cleanJSON(string(text)), more, after)
}
