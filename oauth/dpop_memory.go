package oauth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// A proofMemory knows which proofs were used. It keeps two generations: a proof goes into the young one, and when that
// has lasted as long as any proof is good, it becomes the old one, and the old one is dropped.
type proofMemory struct {
	most int // in one generation

	mu         sync.Mutex // guards the fields below
	turned     time.Time  // when the young generation began
	young, old map[proofID]struct{}
	byKey      map[string]int // how many of the young ones each key made
}

// A proofID is a digest of the key and the jti of a proof. Another one with the same digest is not to be found.
type proofID [sha256.Size / 2]byte

// add notes that a proof of a key was used, which is an error if it was before, or if there is no room.
func (m *proofMemory) add(key, jti string, now time.Time) error {
	sum := sha256.Sum256([]byte(key + "\x00" + jti)) // a thumbprint has no NUL in it
	id := proofID(sum[:len(proofID{})])
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	_, inYoung := m.young[id]
	_, inOld := m.old[id]
	switch {
	case inYoung || inOld:
		return badProof("it was used before")
	case len(m.young) >= m.most, m.byKey[key] >= (m.most+1)/2:
		return errManyProofs
	}
	m.young[id] = struct{}{}
	m.byKey[key]++
	return nil
}

// turn forgets what is too old to be taken again.
func (m *proofMemory) turn(now time.Time) {
	age := now.Sub(m.turned)
	if m.young != nil && age < proofSpan {
		return
	}
	m.old = m.young
	if age >= 2*proofSpan {
		m.old = nil
	}
	m.young, m.byKey, m.turned = map[proofID]struct{}{}, map[string]int{}, now
}
