package otelmcp

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxArguments limits the arguments of a call in a span, in bytes.
	maxArguments = 8 << 10
	// maxText bounds an attribute that peers choose, such as a URI, in bytes.
	maxText = 1 << 10
)

// startSpan begins the span of an operation.
func (o *Observer) startSpan(op *operation, req *mcp.Request, via *driver.Via) {
	name, options := op.beginning(req.Method)
	if op.role == client {
		if !o.opts.PublicEndpoint && !trace.SpanContextFromContext(op.Context).IsValid() {
			op.Context = o.extract(op, req) // of CallOptions.Meta, or of the request that a task belongs to
		}
		op.Context, op.span = o.tracer.Start(op.Context, name, options...)
		o.inject(op.Context, req)
	} else {
		ctx, options := o.parent(op, req, options)
		op.Context, op.span = o.tracer.Start(ctx, name, options...)
	}
	if op.kind != nil && op.span.IsRecording() {
		op.span.SetAttributes(o.attributes(op, op.kind, req, via)...)
	}
}

// beginning returns the name and the options of a span that begins.
func (op *operation) beginning(method string) (string, []trace.SpanStartOption) {
	switch {
	case op.kind != nil:
		return op.kind.name, op.kind.start
	case methods[method]:
		return method, unknown[op.role].start
	}
	return other, unknown[op.role].start
}

// unknown holds the kinds of requests with unknown names.
var unknown = [roles]*kind{newKind(kindKey{role: server}), newKind(kindKey{role: client}),
	newKind(kindKey{role: taskRun})}

// attributes returns the attributes of a request: the attributes of its kind, and its own.
func (o *Observer) attributes(op *operation, k *kind, req *mcp.Request, via *driver.Via) []attribute.KeyValue {
	own := 1 // the usual number of the others
	if via.Peer != "" {
		own = 4
	}
	all := append(make([]attribute.KeyValue, 0, len(k.attributes)+own), k.attributes...)
	add := func(name, value string) {
		if value != "" {
			all = append(all, attribute.String(name, value))
		}
	}
	if k.method == other {
		add(attrMethod, shorten(req.Method, maxLabel))
	}
	if id := req.ID.String(); id != "" && op.role != taskRun {
		add(attrRequestID, strings.Trim(id, `"`))
	}
	if k.target == other && op.role == client {
		name := shorten(stringParam(req, "name"), maxLabel)
		if req.Method == methodCall {
			add(attrTool, name)
		} else {
			add(attrPrompt, name)
		}
	}
	if strings.HasPrefix(req.Method, "resources/") {
		add(attrResource, shorten(stringParam(req, "uri"), maxText))
	}
	switch op.role {
	case taskRun:
		all = append(all, attribute.Bool(attrDetached, true))
	case server:
		host, port := splitHost(via.Peer)
		add(attrClientAddress, host)
		if port > 0 {
			all = append(all, attribute.Int(attrClientPort, port))
		}
		add(attrSession, o.sessionID(req, via))
	}
	if o.opts.Arguments && req.Method == methodCall {
		arguments, _ := req.Param("arguments")
		add(attrArguments, shorten(string(arguments), maxArguments))
	}
	return all
}

// sessionID returns the identifier of the session of a request to an HTTP server, or "".
func (o *Observer) sessionID(req *mcp.Request, via *driver.Via) string {
	if id := req.Header["Mcp-Session-Id"]; o.opts.SessionIDs && via.Session != "" && len(id) > 0 {
		return shorten(id[0], maxLabel)
	}
	return via.Session
}

// stringParam returns a member of params that is a string, or "".
func stringParam(req *mcp.Request, key string) (text string) {
	if raw, ok := req.Param(key); ok {
		_ = json.Unmarshal(raw, &text)
	}
	return text
}

// shorten returns at most so many bytes of a text, as valid UTF-8.
func shorten(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// endSpan ends the span of an operation.
func (o *Observer) endSpan(op *operation, k *kind, req *mcp.Request, out *mcp.Outcome, failure string) {
	span := op.span
	if !span.IsRecording() {
		span.End()
		return
	}
	if op.kind != k {
		span.SetName(k.name)
	}
	if op.kind == nil { // the request was the first of its kind
		via := req.Via()
		span.SetAttributes(o.attributes(op, k, req, &via)...)
	}
	switch {
	case failure != "":
		setError(span, out, failure)
	case out.InputRequired:
		span.SetAttributes(attribute.Bool(attrInputRequired, true))
	}
	span.End()
}

// setError marks a span as failed. The client sees the text of a protocol error; other texts may
// contain data that belongs in the log only.
func setError(span trace.Span, out *mcp.Outcome, failure string) {
	description := ""
	e, ok := errors.AsType[*mcp.Error](out.Err)
	if ok {
		description = shorten(e.Message, maxText)
	}
	if ok && isCode(failure) || failure == other && ok {
		failure = strconv.Itoa(e.Code)
		span.SetAttributes(attribute.String(attrErrorType, failure), attribute.String(attrStatusCode, failure))
	} else {
		span.SetAttributes(attribute.String(attrErrorType, failure))
	}
	span.SetStatus(codes.Error, description)
}

// operationFrom returns the operation that ctx belongs to, or nil.
func operationFrom(ctx context.Context) *operation {
	op, _ := ctx.Value(operationKey{}).(*operation)
	return op
}
