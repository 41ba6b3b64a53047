package mcp

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"

	jsonv2 "github.com/go-json-experiment/json"
)

const (
	// maxCached is the number of cached results, maxCachedBytes their total size. Beyond either,
	// the result that expires first is evicted.
	maxCached      = 1000
	maxCachedBytes = 16 << 20
	// maxTTL is the longest time that a result is cached, whatever the server allows.
	maxTTL = 24 * time.Hour
)

// A resultCache holds the results of cacheable methods for the time that the server allows. Each
// entry belongs to one client and one principal, so private results stay private. Spec:
// server/utilities/caching (2026-07-28).
type resultCache struct {
	mu         sync.Mutex              // guards the fields below
	entries    map[string]cachedResult // by principal, method and params without `_meta`
	bytes      int
	generation int // incremented by every invalidation
}

type cachedResult struct {
	raw     RawResult
	method  string
	expires time.Time
}

func cacheKey(ctx context.Context, k *clientRequest) string {
	return PrincipalFrom(ctx).Key() + "\x00" + k.method + string(k.members)
}

// currentGeneration returns the number of invalidations before a request is sent.
func (c *resultCache) currentGeneration() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

func (c *resultCache) get(ctx context.Context, k *clientRequest) (RawResult, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[cacheKey(ctx, k)]
	if !ok || !time.Now().Before(e.expires) {
		return nil, false
	}
	return e.raw, true
}

// put caches a result if its ttlMs allows it. The request was sent in the given generation.
func (c *resultCache) put(ctx context.Context, k *clientRequest, raw RawResult, generation int) {
	ttl, key := min(decodeCache(raw).TTL, maxTTL), cacheKey(ctx, k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation {
		return // the result may be older than the invalidation
	}
	c.drop(key)
	if ttl <= 0 || len(raw) > maxCachedBytes/4 {
		return
	}
	for len(c.entries) >= maxCached || c.bytes+len(raw) > maxCachedBytes {
		var oldest string // the entry that expires first
		for k, e := range c.entries {
			if oldest == "" || e.expires.Before(c.entries[oldest].expires) {
				oldest = k
			}
		}
		c.drop(oldest)
	}
	put(&c.entries, key, cachedResult{raw, k.method, time.Now().Add(ttl)})
	c.bytes += len(raw)
}

// decodeCache returns the caching hints of a result. It returns zero for an invalid hint.
func decodeCache(raw RawResult) (c Cache) {
	var ms float64
	value, _ := jsonscan.Get(raw, "ttlMs")
	if jsonscan.Kind(value) == '0' && jsonv2.Unmarshal(value, &ms) == nil && ms > 0 {
		const maxMs = float64(math.MaxInt64 / time.Millisecond / 2) // exact enough, and no overflow
		c.TTL = time.Duration(min(ms, maxMs)) * time.Millisecond
	}
	text := jsonscan.GetString(raw, "cacheScope")
	c.Public = text == "public"
	return c
}

func (c *resultCache) drop(key string) {
	if e, ok := c.entries[key]; ok {
		c.bytes -= len(e.raw)
		delete(c.entries, key)
	}
}

func (c *resultCache) invalidate(methods ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for key, e := range c.entries {
		if slices.Contains(methods, e.method) {
			c.drop(key)
		}
	}
}

// clear drops all results: the next connection may reach another server.
func (c *resultCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.entries, c.bytes = nil, 0
}
