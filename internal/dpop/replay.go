package dpop

import (
	"crypto/sha256"
	"sync"
	"time"
)

// A replayCache remembers the proofs that were used. It has two generations: a proof enters the
// current one; when that is as old as a proof can be valid, it becomes the previous one, and the
// previous one is dropped.
type replayCache struct {
	max int // proofs in one generation

	mu                sync.Mutex // guards the fields below
	began             time.Time  // when the current generation began
	current, previous map[proofID]struct{}
	byKey             map[string]int // proofs of the current generation, by key
}

// A proofID is a digest of the key and the jti of a proof.
type proofID [sha256.Size / 2]byte

// add records that a proof of a key was used. It returns a *ProofError if it was used before, and
// ErrTooManyProofs if the cache is full or one key has half of it.
func (c *replayCache) add(key, jti string, now time.Time) error {
	sum := sha256.Sum256([]byte(key + "\x00" + jti)) // a thumbprint contains no NUL
	id := proofID(sum[:len(proofID{})])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	_, inCurrent := c.current[id]
	_, inPrevious := c.previous[id]
	switch {
	case inCurrent || inPrevious:
		return invalidProof("the proof was used before: every request needs a new one")
	case len(c.current) >= c.max, c.byKey[key] >= (c.max+1)/2:
		return ErrTooManyProofs
	}
	c.current[id] = struct{}{}
	c.byKey[key]++
	return nil
}

// expire drops the proofs that are too old to be accepted again. The caller holds mu.
func (c *replayCache) expire(now time.Time) {
	age := now.Sub(c.began)
	if c.current != nil && age < proofValidity {
		return
	}
	c.previous = c.current
	if age >= 2*proofValidity {
		c.previous = nil
	}
	c.current, c.byKey, c.began = map[proofID]struct{}{}, map[string]int{}, now
}
