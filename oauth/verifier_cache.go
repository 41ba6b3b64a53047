package oauth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// A tokenCache remembers tokens that were found good, by their digests. It keeps two generations: when the current one
// is full it becomes the old one, and the old one is forgotten.
type tokenCache struct {
	max int // in one generation

	mu                sync.Mutex // guards the fields below
	current, previous map[[sha256.Size]byte]verified
}

// verified is a token that was found good, until when that is believed, and on what it rests.
type verified struct {
	token *Token
	until time.Time
	by    *keySet // nil if it rests on nothing that can change
}

// get returns a token that was found good by the same keys; nil if there is none.
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

// add remembers a token.
func (c *tokenCache) add(digest [sha256.Size]byte, v verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(digest, v)
}

// put puts into the current generation. The caller holds c.mu.
func (c *tokenCache) put(digest [sha256.Size]byte, v verified) {
	if len(c.current) >= c.max {
		c.current, c.previous = nil, c.current
	}
	if c.current == nil {
		c.current = make(map[[sha256.Size]byte]verified)
	}
	c.current[digest] = v
}
