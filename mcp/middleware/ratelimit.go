package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxBuckets limits the token buckets of a limiter, of authenticated and of anonymous callers each.
// A bucket takes about 400 bytes.
const maxBuckets = 20_000

// A Rate limits the number of events in a time, as a token bucket does. The zero Rate is no limit.
type Rate struct {
	PerSecond float64 // events per second, on average
	Burst     int     // events at once; 0 means 1
}

func (r Rate) limit() limit.Rate { return limit.Rate{PerSecond: r.PerSecond, Burst: max(r.Burst, 1)} }

// RateLimitOptions configures [RateLimit]. Each limit applies to each caller separately.
type RateLimitOptions struct {
	// ToolCalls limits the calls of all tools together. Each round of a call that asks questions
	// counts.
	ToolCalls Rate
	// Tools limits the calls of single tools, by name.
	Tools map[string]Rate
	// Completions limits requests for completions of arguments.
	Completions Rate
	// LogMessages limits the log messages that are sent to a client. Messages above it are dropped.
	LogMessages Rate
	// Questions limits the questions to the user and the model of a client. A call that exceeds it
	// fails.
	Questions Rate
	// Caller returns the key of the caller of a request. It must be safe for concurrent use.
	// Default: [mcp.Principal.Key], so all anonymous callers share a set of limits. At most 20,000
	// limits of authenticated callers, and as many of others, are kept; then the limits unused for
	// the longest time are dropped, and their callers start with a full burst.
	Caller func(ctx context.Context, req *mcp.Request) string
}

// RateLimit returns a middleware that refuses requests above a rate with [mcp.CodeBusy]. The
// error's data contains the time to wait, in milliseconds, as retryAfterMs. Each process counts for
// itself, so replicas of a server do not share limits. opts must not be nil.
//
// Spec: server/tools, server/utilities/completion, server/utilities/logging and client/elicitation,
// Security Considerations.
func RateLimit(opts *RateLimitOptions) mcp.Middleware {
	l := &limiter{opts: *opts, authenticated: limit.NewTable[bucketKey, struct{}](maxBuckets, nil),
		anonymous: limit.NewTable[bucketKey, struct{}](maxBuckets, nil)}
	if l.opts.Caller == nil {
		l.opts.Caller = func(_ context.Context, req *mcp.Request) string { return req.Principal.Key() }
	}
	return func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			return l.serve(ctx, req, next)
		})
	}
}

// A limiter holds a token bucket for each caller and kind of event.
type limiter struct {
	opts RateLimitOptions
	// Anonymous callers, whose keys may vary with each request, do not evict the buckets of others.
	authenticated, anonymous *limit.Table[bucketKey, struct{}]
}

// A bucketKey identifies a token bucket. The kind is a method, or "tool:" and the name of a tool
// with a limit, so a client cannot create further kinds.
type bucketKey struct {
	caller, kind string
	anonymous    bool
}

func (l *limiter) serve(ctx context.Context, req *mcp.Request, next mcp.Handler) (mcp.Result, error) {
	caller := l.opts.Caller(ctx, req)
	key := func(kind string) bucketKey {
		return bucketKey{caller, kind, req.Principal == nil}
	}
	if err := l.admit(key, req); err != nil {
		return nil, err
	}
	const message = "notifications/message"
	if notify := req.Notify; notify != nil && l.opts.LogMessages != (Rate{}) {
		req.Notify = func(ctx context.Context, method string, params json.RawMessage) error {
			if method == message && l.wait(key(message), l.opts.LogMessages, 1) > 0 {
				return nil
			}
			return notify(ctx, method, params)
		}
	}
	res, err := next.ServeMCP(ctx, req)
	if asked, ok := res.(*mcp.InputRequiredResult); ok && err == nil && asked != nil {
		if wait := l.wait(key("questions"), l.opts.Questions, len(asked.InputRequests)); wait > 0 {
			return nil, busy("too many questions to the client", wait)
		}
	}
	return res, err
}

// admit returns an error for a request above its rate. A run of a detached call was counted when it
// began.
func (l *limiter) admit(key func(kind string) bucketKey, req *mcp.Request) error {
	if req.Detached() != nil {
		return nil
	}
	switch req.Method {
	case "tools/call":
		tool := targetOf(req)
		ofTool, r := key("tool:"+tool), l.opts.Tools[tool]
		if wait := l.wait(ofTool, r, 1); wait > 0 {
			return busy(fmt.Sprintf("too many calls of tool %q", tool), wait)
		}
		if wait := l.wait(key(req.Method), l.opts.ToolCalls, 1); wait > 0 {
			if r != (Rate{}) {
				l.table(ofTool).GiveBack(ofTool, r.limit(), 1)
			}
			return busy("too many tool calls", wait)
		}
	case "completion/complete":
		if wait := l.wait(key(req.Method), l.opts.Completions, 1); wait > 0 {
			return busy("too many completions", wait)
		}
	}
	return nil
}

// wait takes n tokens from a bucket, or returns how long to wait until it contains them.
func (l *limiter) wait(key bucketKey, r Rate, n int) time.Duration {
	limited := r.limit()
	switch {
	case r == (Rate{}):
		return 0
	case n > limited.Burst:
		return time.Minute // more than the bucket ever contains
	}
	return l.table(key).Take(key, limited, n)
}

func (l *limiter) table(key bucketKey) *limit.Table[bucketKey, struct{}] {
	if key.anonymous {
		return l.anonymous
	}
	return l.authenticated
}

func busy(message string, wait time.Duration) *mcp.Error {
	return &mcp.Error{Code: mcp.CodeBusy, Message: message,
		Data: fmt.Appendf(nil, `{"retryAfterMs":%d}`, wait.Milliseconds()+1)}
}
