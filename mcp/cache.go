package mcp

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"

	jsonv2 "github.com/go-json-experiment/json"
)

const (
	// maxCached bounds the answers that a client keeps, and maxCachedBytes their size in all. Past either, those that
	// expire first go first.
	maxCached      = 1000
	maxCachedBytes = 16 << 20
	// maxFresh is how long an answer is believed at most: a server that says "for ever" may have been wrong.
	maxFresh = 24 * time.Hour
)

// A resultCache keeps answers to cacheable methods for as long as the server says that they stay good. What is private stays so: each answer is
// that of one client and one principal.
//
// Spec: server/utilities/caching (2026-07-28).
type resultCache struct {
	mu      sync.Mutex
	entries map[string]cachedResult // by principal, method and params without `_meta`
	bytes   int
	changes int // how often something was said to be stale
}

type cachedResult struct {
	raw    RawResult
	method string
	until  time.Time
}

func cacheKey(ctx context.Context, k *ask) string {
	return PrincipalFrom(ctx).Key() + "\x00" + k.method + string(k.members)
}

// now returns the time of a request: no answer to it is kept if something is said to be stale after it.
func (c *resultCache) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// get returns a fresh answer.
func (c *resultCache) get(ctx context.Context, k *ask) (RawResult, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[cacheKey(ctx, k)]
	if !ok || !time.Now().Before(e.until) {
		return nil, false
	}
	return e.raw, true
}

// put keeps an answer that says that it may be kept. The request was begun at the time asked.
func (c *resultCache) put(ctx context.Context, k *ask, raw RawResult, asked int) {
	ttl, key := freshFor(raw), cacheKey(ctx, k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked != c.changes {
		return // it may be older than the change
	}
	c.drop(key)
	if ttl <= 0 || len(raw) > maxCachedBytes/4 {
		return
	}
	for len(c.entries) >= maxCached || c.bytes+len(raw) > maxCachedBytes {
		c.drop(c.oldest())
	}
	put(&c.entries, key, cachedResult{raw, k.method, time.Now().Add(ttl)})
	c.bytes += len(raw)
}

// freshFor reads how long an answer stays good. What is no number of milliseconds is no permission.
func freshFor(raw RawResult) time.Duration {
	value, ok := jsonscan.Get(raw, "ttlMs")
	if !ok || jsonscan.Kind(value) != '0' {
		return 0
	}
	var ms float64
	if jsonv2.Unmarshal(value, &ms) != nil || math.IsNaN(ms) || ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, float64(maxFresh/time.Millisecond))) * time.Millisecond
}

func (c *resultCache) drop(key string) {
	if e, ok := c.entries[key]; ok {
		c.bytes -= len(e.raw)
		delete(c.entries, key)
	}
}

// oldest returns the key of the entry that expires first.
func (c *resultCache) oldest() (key string) {
	var first time.Time
	for k, e := range c.entries {
		if first.IsZero() || e.until.Before(first) {
			key, first = k, e.until
		}
	}
	return key
}

// forget drops the answers to methods, because the server says that they have changed.
func (c *resultCache) forget(methods ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	for key, e := range c.entries {
		for _, method := range methods {
			if e.method == method {
				c.drop(key)
			}
		}
	}
}

// clear drops everything: another connection may be to another server.
func (c *resultCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.entries, c.bytes = nil, 0
}
