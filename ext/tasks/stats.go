package tasks

// Stats are figures of a [Server] at a moment. They describe this process: a store may be shared.
type Stats struct {
	Running int // tasks whose handler runs
	Queued  int // tasks that wait until another task ended
}

// Stats returns the figures of the server, for metrics. It is safe for concurrent use, and fast.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Running: s.queue.running, Queued: len(s.runs) - s.queue.running}
}
