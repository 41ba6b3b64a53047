package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// completionTTL is how long a completion is used again: a user who corrects what was typed
	// comes back to the same text within seconds.
	completionTTL = 30 * time.Second
	// maxCompletions and maxCompletionSize bound the memory of the cache: 4 MiB.
	maxCompletions    = 256
	maxCompletionSize = 16 << 10
)

// Completions returns a middleware for [mcp.ClientOptions] that sends fewer requests for
// completions while a user types: it delays each by delay, for instance 150 milliseconds, and
// answers the same request within 30 seconds from a cache. A request fails with an error that is
// [context.Canceled] if another request for the same argument and principal follows before it is
// sent. Each client needs a middleware of its own.
//
// Spec: server/utilities/completion, Implementation Considerations.
func Completions(delay time.Duration) mcp.Middleware {
	c := &completions{delay: delay, cached: map[string]cachedCompletion{}, waiting: map[string]chan struct{}{}}
	return func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method != "completion/complete" {
				return next.ServeMCP(ctx, req)
			}
			return c.serve(ctx, req, next)
		})
	}
}

type completions struct {
	delay time.Duration

	mu      sync.Mutex // guards the fields below
	cached  map[string]cachedCompletion
	waiting map[string]chan struct{} // by argument; closed when another request replaces the waiting request
}

type cachedCompletion struct {
	result  mcp.RawResult
	expires time.Time
}

func (c *completions) serve(ctx context.Context, req *mcp.Request, next mcp.Handler) (mcp.Result, error) {
	argument, key := completionKeys(ctx, req)
	result, replaced := c.begin(argument, key)
	if result != nil {
		return result, nil
	}
	if err := c.wait(ctx, argument, replaced); err != nil {
		return nil, err
	}
	res, err := next.ServeMCP(ctx, req)
	if raw, ok := res.(mcp.RawResult); ok && err == nil && len(key)+len(raw) <= maxCompletionSize {
		c.put(key, raw)
	}
	return res, err
}

// completionKeys returns a key of the principal and the argument that is completed, and a key of
// the whole request without its `_meta`.
func completionKeys(ctx context.Context, req *mcp.Request) (argument, whole string) {
	ref, _ := req.Param("ref")
	value, _ := req.Param("argument")
	known, _ := req.Param("context")
	var named struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(value, &named) // the client encoded it
	argument = fmt.Sprintf("%q %s %q", mcp.PrincipalFrom(ctx).Key(), ref, named.Name)
	return argument, fmt.Sprintf("%s %s %s", argument, value, known)
}

// begin returns the cached result of a request, or a channel that is closed when another request
// for the same argument replaces it. In both cases it replaces the waiting request.
func (c *completions) begin(argument, key string) (mcp.Result, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.waiting[argument]; before != nil {
		close(before)
		delete(c.waiting, argument)
	}
	if found, ok := c.cached[key]; ok && time.Now().Before(found.expires) {
		return found.result, nil
	}
	replaced := make(chan struct{})
	c.waiting[argument] = replaced
	return nil, replaced
}

// wait waits for the delay, unless the request is replaced or ctx ends.
func (c *completions) wait(ctx context.Context, argument string, replaced chan struct{}) error {
	timer := time.NewTimer(c.delay)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-replaced:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[argument] != replaced {
		return fmt.Errorf("middleware: a later completion of the argument replaces this one: %w", context.Canceled)
	}
	delete(c.waiting, argument)
	return err
}

// put caches a result. If the cache is full, it drops those that expired, or else all.
func (c *completions) put(key string, result mcp.RawResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.cached) >= maxCompletions {
		for k, e := range c.cached {
			if !now.Before(e.expires) {
				delete(c.cached, k)
			}
		}
	}
	if len(c.cached) >= maxCompletions {
		clear(c.cached)
	}
	c.cached[key] = cachedCompletion{result, now.Add(completionTTL)}
}
