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
	// maxBuckets bounds the memory of a limiter: about 150 bytes each.
	maxBuckets = 20_000
	// sweepPause is the time between two searches for buckets that are full again.
	sweepPause = time.Second
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
	// [mcp.Principal.Key], so all anonymous callers share one set of limits.
	Caller func(ctx context.Context, req *mcp.Request) string
}

// RateLimit returns a middleware that refuses requests above a rate with [mcp.CodeBusy]. The
// error's data has the time to wait, in milliseconds, as retryAfterMs. Each process counts for
// itself, so replicas of a server do not share limits. opts must not be nil.
//
// Spec: server/tools, server/utilities/completion, server/utilities/logging and client/elicitation,
// Security Considerations.
func RateLimit(opts *RateLimitOptions) mcp.Middleware {
	l := &limiter{opts: *opts, buckets: map[bucketKey]*rate.Limiter{}}
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

	mu      sync.Mutex // guards the fields below
	buckets map[bucketKey]*rate.Limiter
	swept   time.Time
}

// A bucketKey names a token bucket. The kind is a method, or "tool:" and the name of a tool that
// has a limit, so a client cannot create further ones.
type bucketKey struct{ caller, kind string }

// overflow is the caller of the buckets that further callers share when there are maxBuckets.
const overflow = "\x00overflow"

func (l *limiter) serve(ctx context.Context, req *mcp.Request, next mcp.Handler) (mcp.Result, error) {
	caller := l.opts.Caller(ctx, req)
	if err := l.admit(caller, req); err != nil {
		return nil, err
	}
	const message = "notifications/message"
	if notify := req.Notify; notify != nil && l.opts.LogMessages != (Rate{}) {
		req.Notify = func(ctx context.Context, method string, params json.RawMessage) error {
			if method == message && l.wait(bucketKey{caller, message}, l.opts.LogMessages, 1) > 0 {
				return nil
			}
			return notify(ctx, method, params)
		}
	}
	res, err := next.ServeMCP(ctx, req)
	if asked, ok := res.(*mcp.InputRequiredResult); ok && err == nil && asked != nil {
		if wait := l.wait(bucketKey{caller, "questions"}, l.opts.Questions, len(asked.InputRequests)); wait > 0 {
			return nil, busy("too many questions to the client", wait)
		}
	}
	return res, err
}

// admit returns an error for a request above its rate. A run of a detached call was counted when it
// began.
func (l *limiter) admit(caller string, req *mcp.Request) error {
	if req.Detached() != nil {
		return nil
	}
	switch req.Method {
	case "tools/call":
		tool := targetOf(req)
		if wait := l.wait(bucketKey{caller, "tool:" + tool}, l.opts.Tools[tool], 1); wait > 0 {
			return busy(fmt.Sprintf("too many calls of tool %q", tool), wait)
		}
		if wait := l.wait(bucketKey{caller, req.Method}, l.opts.ToolCalls, 1); wait > 0 {
			return busy("too many tool calls", wait)
		}
	case "completion/complete":
		if wait := l.wait(bucketKey{caller, req.Method}, l.opts.Completions, 1); wait > 0 {
			return busy("too many completions", wait)
		}
	}
	return nil
}

// wait takes n tokens from a bucket, or returns how long to wait until it has them.
func (l *limiter) wait(key bucketKey, r Rate, n int) time.Duration {
	if r == (Rate{}) {
		return 0
	}
	now := time.Now()
	reserved := l.bucket(key, r, now).ReserveN(now, n)
	if !reserved.OK() {
		return time.Minute // more than the bucket ever has
	}
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	return wait
}

func (l *limiter) bucket(key bucketKey, r Rate, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.buckets[key]; b != nil {
		return b
	}
	if len(l.buckets) >= maxBuckets && now.Sub(l.swept) >= sweepPause {
		l.swept = now
		for k, b := range l.buckets {
			if b.TokensAt(now) >= float64(b.Burst()) { // as a new one would be
				delete(l.buckets, k)
			}
		}
	}
	if len(l.buckets) >= maxBuckets {
		key.caller = overflow
		if b := l.buckets[key]; b != nil {
			return b
		}
	}
	b := rate.NewLimiter(rate.Limit(r.PerSecond), max(r.Burst, 1))
	l.buckets[key] = b
	return b
}

func busy(message string, wait time.Duration) *mcp.Error {
	return &mcp.Error{Code: mcp.CodeBusy, Message: message,
		Data: fmt.Appendf(nil, `{"retryAfterMs":%d}`, wait.Milliseconds()+1)}
}
