package legacy

// TrackedElicitations returns the number of tracked elicitations.
func (c *Client) TrackedElicitations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.elicitations)
}

// ResourceSubscriptions returns the number of resource subscriptions.
func (c *Client) ResourceSubscriptions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.resources)
}

// ModernResults returns the methods whose results are projected to the modern era.
func ModernResults() map[string]bool {
	changes := map[string]bool{}
	for method, p := range modernResults() {
		changes[method] = p != nil
	}
	return changes
}

// Tasks returns the number of the client's tasks.
func (c *Client) Tasks() int {
	c.tasks.mu.Lock()
	defer c.tasks.mu.Unlock()
	return len(c.tasks.all)
}

// TaskBytes returns the size of the kept outcomes of tasks.
func (c *Client) TaskBytes() int {
	c.tasks.mu.Lock()
	defer c.tasks.mu.Unlock()
	return c.tasks.bytes
}
