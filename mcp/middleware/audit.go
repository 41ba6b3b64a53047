package middleware

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxTarget bounds the target of an audit record, which comes from the client.
const maxTarget = 256

// An AuditRecord describes a request that a server served. It contains no arguments and no
// results, which may be secret. oauth.Decision describes the authorization of an HTTP request, and
// authserver.AuditEvent an action at the authorization server.
type AuditRecord struct {
	// Principal is the authenticated caller, nil if the transport does not authenticate.
	Principal *mcp.Principal
	// Client is the name and version that the client claims.
	Client mcp.Implementation
	// Method is the method, such as "tools/call".
	Method string
	// Target is the tool, prompt, resource or task of the request, at most 256 bytes; may be empty.
	Target string
	// ResultType is that of the result, such as "complete"; empty if Err is set.
	ResultType string
	// ToolError reports whether the result is a tool error, which the model sees.
	ToolError bool
	// Err is the error of the request, nil with a result.
	Err error
	// Start is when the request began, and Duration how long it took. For a subscription, Duration
	// is the time until it was open.
	Start    time.Time
	Duration time.Duration
}

// Audit returns a middleware that calls record after each request. A call that asks questions is
// several requests. record must be safe for concurrent use, and must not block: the response is
// sent after it returned.
func Audit(record func(ctx context.Context, r AuditRecord)) mcp.Middleware {
	return func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (res mcp.Result, err error) {
			r := AuditRecord{Principal: req.Principal, Client: req.ClientInfo(), Method: req.Method,
				Target: targetOf(req), Start: time.Now()}
			defer func() { // also if the handler ends the goroutine
				r.Err, r.Duration = err, time.Since(r.Start)
				if err == nil && res != nil {
					r.ResultType = res.ResultType()
				}
				call, ok := res.(*mcp.CallToolResult)
				r.ToolError = ok && call != nil && call.IsError
				record(ctx, r)
			}()
			return next.ServeMCP(ctx, req)
		})
	}
}

// targetOf returns the name, URI or task id in the params of a request, cut to maxTarget.
func targetOf(req *mcp.Request) string {
	for _, name := range []string{"name", "uri", "taskId"} {
		raw, ok := req.Param(name)
		if !ok {
			continue
		}
		var target string
		if json.Unmarshal(raw, &target) != nil {
			return ""
		}
		return strings.ToValidUTF8(target[:min(len(target), maxTarget)], "")
	}
	return ""
}
