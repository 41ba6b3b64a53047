package oauth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// A tokenCache remembers verified tokens by their digests. It has two generations: when the current
// one is full it becomes the previous one, and the previous one is dropped.
type tokenCache struct {
	max int // in one generation

	mu                sync.Mutex // guards the fields below
	current, previous map[[sha256.Size]byte]verified
}

// A verified is a verified token, how long it is cached, and the keys that verified it.
type verified struct {
	token *Token
	until time.Time
	by    *keySet // nil if no keys were used
}

// get returns a cached token that the same keys verified; nil if there is none.
func (c *tokenCache) get(digest [sha256.Size]byte, by *keySet, now time.Time) *Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.current[digest]
	if !ok {
		if v, ok = c.previous[digest]; ok {
			c.put(digest, v)
		}
	}
	if !ok || v.by != by || !now.Before(v.until) {
		return nil
	}
	return v.token
}

// add caches a token.
func (c *tokenCache) add(digest [sha256.Size]byte, v verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(digest, v)
}

// put stores into the current generation. The caller holds c.mu.
func (c *tokenCache) put(digest [sha256.Size]byte, v verified) {
	if len(c.current) >= c.max {
		c.current, c.previous = nil, c.current
	}
	if c.current == nil {
		c.current = make(map[[sha256.Size]byte]verified)
	}
	c.current[digest] = v
}
