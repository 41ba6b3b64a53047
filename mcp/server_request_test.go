package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A server that sends a request in the modern era, as keepalives do, gets a response on a stream.
//
// Requirement: RPC-33
func TestRequestsOfModernServersAreAnswered(t *testing.T) {
	var got []string
	withRawServer(t, nil, func(s *rawServer) {
		id, _ := s.next()
		for i, method := range []string{"ping", "sampling/createMessage", "x/unknown"} {
			s.send(`{"jsonrpc":"2.0","id":"q%d","method":%q}`, i, method)
			line, err := s.lines.ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			got = append(got, strings.TrimSpace(line))
		}
		s.send(noContent, id)
	}, func(t *testing.T, c *mcp.Client) {
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
	})
	refusal := `{"jsonrpc":"2.0","id":"q%d","error":{"code":-32601,"message":"method not found: \"%s\""}}`
	for i, want := range []string{
		`{"jsonrpc":"2.0","id":"q0","result":{}}`,
		fmt.Sprintf(refusal, 1, "sampling/createMessage"), fmt.Sprintf(refusal, 2, "x/unknown"),
	} {
		if i >= len(got) || got[i] != want {
			t.Errorf("got %q, want response %d to be %s", got, i, want)
		}
	}
}

// A server that sends requests and reads no responses does not block the client or fill its memory.
//
// Requirement: RPC-33
func TestUnreadRepliesAreDropped(t *testing.T) {
	const requests = 5000
	withRawServer(t, nil, func(s *rawServer) {
		id, _ := s.next()
		for i := range requests {
			s.send(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
		}
		s.send(noContent, id)
	}, func(t *testing.T, c *mcp.Client) {
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
	})
}
