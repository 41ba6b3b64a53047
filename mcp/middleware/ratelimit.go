package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxBuckets bounds the memory of a limiter, for authenticated and for anonymous callers each:
	// about 150 bytes each.
	maxBuckets = 20_000
)

// A Rate limits the number of events in a time, as a token bucket does. The zero Rate is no limit.
type Rate struct {
	PerSecond float64 // events per second, on average
	Burst     int     // events at once; 0 means 1
}

// RateLimitOptions configures [RateLimit]. Each limit applies to each caller separately.
type RateLimitOptions struct {
	// ToolCalls limits the calls of all tools together. Each round of a call that asks questions
	// counts.
	ToolCalls Rate
	// Tools limits the calls of single tools, by name.
	Tools map[string]Rate
	// Completions limits requests for completions of arguments.
	Completions Rate
	// LogMessages limits the log messages that are sent to a client. Those above it are dropped.
	LogMessages Rate
	// Questions limits the questions to the user and the model of a client. A call that exceeds it
	// fails.
	Questions Rate
	// Caller returns the key of the caller of a request. It must be safe for concurrent use. Default:
	// [mcp.Principal.Key], so all anonymous callers share one set of limits. At most 20,000 limits of
	// authenticated callers, and as many of others, are kept; then those unused for the longest time
	// are dropped, and their callers start with a full burst.
	Caller func(ctx context.Context, req *mcp.Request) string
}

// RateLimit returns a middleware that refuses requests above a rate with [mcp.CodeBusy]. The
// error's data has the time to wait, in milliseconds, as retryAfterMs. Each process counts for
// itself, so replicas of a server do not share limits. opts must not be nil.
//
// Spec: server/tools, server/utilities/completion, server/utilities/logging and client/elicitation,
// Security Considerations.
func RateLimit(opts *RateLimitOptions) mcp.Middleware {
	l := &limiter{opts: *opts}
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

	mu sync.Mutex // guards the buckets
	// Anonymous callers, whose keys may vary with each request, do not evict the buckets of others.
	authenticated, anonymous buckets
}

// A bucketKey names a token bucket. The kind is a method, or "tool:" and the name of a tool that
// has a limit, so a client cannot create further ones.
type bucketKey struct {
	caller, kind string
	anonymous    bool
}

// buckets are token buckets in two generations. When the recent ones are half of maxBuckets, the
// older ones, which were not used since, are dropped.
type buckets struct{ recent, older map[bucketKey]*rate.Limiter }

func (b *buckets) find(key bucketKey, r Rate) *rate.Limiter {
	if found := b.recent[key]; found != nil {
		return found
	}
	found := b.older[key]
	if found == nil {
		found = rate.NewLimiter(rate.Limit(r.PerSecond), max(r.Burst, 1))
	}
	if len(b.recent) >= maxBuckets/2 || b.recent == nil {
		b.recent, b.older = map[bucketKey]*rate.Limiter{}, b.recent
	}
	b.recent[key] = found
	return found
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
		cancel, wait := l.reserve(key("tool:"+tool), l.opts.Tools[tool], 1)
		if wait > 0 {
			return busy(fmt.Sprintf("too many calls of tool %q", tool), wait)
		}
		if wait := l.wait(key(req.Method), l.opts.ToolCalls, 1); wait > 0 {
			cancel()
			return busy("too many tool calls", wait)
		}
	case "completion/complete":
		if wait := l.wait(key(req.Method), l.opts.Completions, 1); wait > 0 {
			return busy("too many completions", wait)
		}
	}
	return nil
}

// wait takes n tokens from a bucket, or returns how long to wait until it has them.
func (l *limiter) wait(key bucketKey, r Rate, n int) time.Duration {
	_, wait := l.reserve(key, r, n)
	return wait
}

// reserve is like wait, and returns a function that puts the tokens back.
func (l *limiter) reserve(key bucketKey, r Rate, n int) (cancel func(), wait time.Duration) {
	if r == (Rate{}) {
		return func() {}, 0
	}
	now := time.Now()
	reserved := l.bucket(key, r).ReserveN(now, n)
	if !reserved.OK() {
		return nil, time.Minute // more than the bucket ever has
	}
	cancel = func() { reserved.CancelAt(now) }
	if wait = reserved.DelayFrom(now); wait > 0 {
		cancel()
	}
	return cancel, wait
}

func (l *limiter) bucket(key bucketKey, r Rate) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key.anonymous {
		return l.anonymous.find(key, r)
	}
	return l.authenticated.find(key, r)
}

func busy(message string, wait time.Duration) *mcp.Error {
	return &mcp.Error{Code: mcp.CodeBusy, Message: message,
		Data: fmt.Appendf(nil, `{"retryAfterMs":%d}`, wait.Milliseconds()+1)}
}
