package mcp

// ServerStats contains figures of a [Server] at a moment.
type ServerStats struct {
	Tools, Prompts, Resources, Templates int // registered, whether or not a caller may see them
	InFlight                             int // requests in progress, without subscriptions
	Subscriptions                        int // open subscriptions, including sessions that are notified of changes
}

// Stats returns the figures of the server, for metrics. It is safe for concurrent use, and fast.
func (s *Server) Stats() ServerStats {
	st := ServerStats{
		Tools: len(s.tools.list()), Prompts: len(s.prompts.list()), Resources: len(s.resources.list()),
		Templates: len(s.templates.list()), InFlight: int(s.serving.Load()),
	}
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	st.Subscriptions = len(s.changes.subs)
	return st
}
