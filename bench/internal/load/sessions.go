package load

import (
	"fmt"
	"net"
	"net/url"
	"time"
)

// Sessions opens sessions and leaves them idle. It uses one connection, so that
// only the sessions increase the memory of the server.
type Sessions struct {
	endpoint *url.URL
	conn     *conn
}

// DialSessions connects to the server at endpoint.
func DialSessions(endpoint string) (*Sessions, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	nc, err := net.DialTimeout("tcp", u.Host, dialTimeout)
	if err != nil {
		return nil, err
	}
	return &Sessions{endpoint: u, conn: newConn(nc)}, nil
}

// Open opens n more sessions, all of which must have distinct ids. It takes at
// most limit.
func (s *Sessions) Open(n int, limit time.Duration) error {
	if err := s.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	ids := make(map[string]bool, n)
	for i := range n {
		id, err := s.conn.openSession(s.endpoint)
		if err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
		if id == "" || ids[id] {
			return fmt.Errorf("session %d: id %q is empty or not new", i, id)
		}
		ids[id] = true
	}
	return nil
}

// Close ends the connection and leaves the sessions to the server.
func (s *Sessions) Close() error { return s.conn.Close() }
