package oauth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// A verifiedTokens remembers tokens that were found good, by their digests. It keeps two generations: when the young one
// is full it becomes the old one, and the old one is forgotten.
type verifiedTokens struct {
	most int // in one generation

	mu         sync.Mutex // guards the fields below
	young, old map[[sha256.Size]byte]verified
}

// verified is a token that was found good, until when that is believed, and on what it rests.
type verified struct {
	token *Token
	until time.Time
	by    *keySet // nil if it rests on nothing that can change
}

// get returns a token that was found good by the same keys; nil if there is none.
func (c *verifiedTokens) get(digest [sha256.Size]byte, by *keySet, now time.Time) *Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.young[digest]
	if !ok {
		if v, ok = c.old[digest]; ok {
			c.put(digest, v)
		}
	}
	if !ok || v.by != by || !now.Before(v.until) {
		return nil
	}
	return v.token
}

// add remembers a token.
func (c *verifiedTokens) add(digest [sha256.Size]byte, v verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(digest, v)
}

// put puts into the young generation. The caller holds c.mu.
func (c *verifiedTokens) put(digest [sha256.Size]byte, v verified) {
	if len(c.young) >= c.most {
		c.young, c.old = nil, c.young
	}
	if c.young == nil {
		c.young = make(map[[sha256.Size]byte]verified)
	}
	c.young[digest] = v
}
