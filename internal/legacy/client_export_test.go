package legacy

// Visits is the number of visits whose end is waited for.
func (c *Client) Visits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.elicitations)
}

// Watches is the number of resources that are subscribed to or about to be.
func (c *Client) Watches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.resources)
}

// ModernResults says of which methods the results lose something on their way to the modern era.
func ModernResults() map[string]bool {
	changes := map[string]bool{}
	for method, p := range modernResults() {
		changes[method] = p != nil
	}
	return changes
}

// Tasks is the number of tasks that the server has made of its questions.
func (c *Client) Tasks() int {
	c.tasks.mu.Lock()
	defer c.tasks.mu.Unlock()
	return len(c.tasks.all)
}

// TaskBytes is the number of bytes that are kept of the outcomes of tasks.
func (c *Client) TaskBytes() int {
	c.tasks.mu.Lock()
	defer c.tasks.mu.Unlock()
	return c.tasks.bytes
}
