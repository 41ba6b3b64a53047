package wire

import "sync"

// CheckedURIs is a cache of the URIs that a session subscribed to, and of whether the server
// accepts them. A session opens its subscription again for each further URI. Without the cache
// every URI would be matched with all templates each time. A nil CheckedURIs does not cache. It is
// safe for concurrent use.
type CheckedURIs struct {
	mu     sync.Mutex // guards the field below
	agreed map[string]bool
}

// Agreed returns the result of check for the URI, or calls it.
func (c *CheckedURIs) Agreed(uri string, check func() bool) bool {
	if c == nil {
		return check()
	}
	c.mu.Lock()
	agreed, known := c.agreed[uri]
	c.mu.Unlock()
	if known {
		return agreed
	}
	agreed = check() // without the lock: it calls functions of the user
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agreed == nil {
		c.agreed = map[string]bool{}
	}
	c.agreed[uri] = agreed
	return agreed
}

// Forget removes a URI.
func (c *CheckedURIs) Forget(uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.agreed, uri)
}
