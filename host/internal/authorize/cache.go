package authorize

import (
	"sync"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

const (
	// maxDecisions limits the decisions that the cache of a view holds.
	maxDecisions = 10_000
	// maxDecisionKey limits the method and the name or URI of a cached decision, in bytes.
	maxDecisionKey = 1 << 10
)

// A Cache holds the decisions about items. It must hold only decisions that depend on the item and
// the caller alone. The zero value is empty. It is safe for concurrent use.
type Cache struct {
	mu      sync.RWMutex // guards the fields below
	epoch   uint64
	decided map[cacheKey]policy.Decision
}

type cacheKey struct {
	kind                   policy.ActionKind
	method, server, target string
	digest                 [32]byte
}

func keyOf(kind policy.ActionKind, a *policy.Action) cacheKey {
	return cacheKey{kind, a.Method, a.Server, a.Target, a.Digest}
}

func (c *Cache) get(k *cacheKey, epoch uint64) (d policy.Decision, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.epoch != epoch {
		return d, false
	}
	d, ok = c.decided[*k]
	return d, ok
}

func (c *Cache) put(k *cacheKey, epoch uint64, d policy.Decision) {
	if len(k.method)+len(k.target) > maxDecisionKey { // callers choose them
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided == nil || c.epoch != epoch || len(c.decided) >= maxDecisions {
		c.epoch, c.decided = epoch, map[cacheKey]policy.Decision{}
	}
	c.decided[*k] = d
}
