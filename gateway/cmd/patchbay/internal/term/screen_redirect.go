package term

import "io"

// Redirect makes w the writer of the screen until restore is called.
func (s *Screen) Redirect(w io.Writer) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.W
	s.W = w
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.W = before
	}
}
