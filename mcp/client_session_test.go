package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// sessionRevisions are the revisions with sessions.
var sessionRevisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// A server answers some pings, then none. The client ends the session after three without a response.
//
// Requirement: PING-02, PING-03
func TestSilentSessionsAreEnded(t *testing.T) {
	for _, revision := range sessionRevisions {
		synctest.Test(t, func(t *testing.T) {
			client, server := mcp.Pipe()
			answered := []bool{true, true, false, false, true} // and none of those that follow
			var pings []time.Duration
			began := time.Now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					m, err := server.Read(context.Background())
					if err != nil {
						return
					}
					switch m.Method {
					case "initialize":
						result := strings.Replace(initialized, "2025-06-18", revision, 1)
						_ = server.Write(t.Context(), &jsonrpc.Message{ID: m.ID, Result: []byte(result)})
					case "ping":
						if pings = append(pings, time.Since(began)); len(pings) <= len(answered) && answered[len(pings)-1] {
							_ = server.Write(t.Context(), &jsonrpc.Message{ID: m.ID, Result: []byte(`{}`)})
						}
					}
				}
			}()
			opts := &mcp.ClientOptions{KeepAlive: 30 * time.Second, Revision: revision, Logger: discardLogger()}
			c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			<-ended
			if took := time.Since(began); took < 270*time.Second || took > 271*time.Second {
				t.Errorf("%s: the session ended after %v, want 270s", revision, took)
			}
			var want []time.Duration
			for n := range len(answered) + 3 {
				want = append(want, time.Duration(n+1)*30*time.Second)
			}
			if !slices.Equal(pings, want) {
				t.Errorf("%s: got pings after %v, want %v", revision, pings, want)
			}
			if _, err := c.CallTool(t.Context(), "t", nil); !errors.Is(err, mcp.ErrClosed) {
				t.Errorf("%s: got %v, want ErrClosed: the Conn cannot be opened again", revision, err)
			}
		})
	}
}

// Completions of pages that the user was not asked to visit are ignored, and so are repeated ones.
//
// Requirement: ELI-29
func TestCompletionsOfElicitedPagesReachTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		var got []string
		opts := &mcp.ClientOptions{
			Revision: "2025-11-25", Logger: discardLogger(),
			ElicitURL: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
			},
			ElicitationComplete: func(_ context.Context, id string) { got = append(got, id) },
		}
		go func() {
			initialize, _ := server.Read(t.Context())
			result := strings.Replace(initialized, "2025-06-18", "2025-11-25", 1)
			_ = server.Write(t.Context(), &jsonrpc.Message{ID: initialize.ID, Result: []byte(result)})
			_, _ = server.Read(t.Context()) // notifications/initialized
			_ = server.Write(t.Context(), &jsonrpc.Message{ID: jsonrpc.IntID(7), Method: "elicitation/create", Params: []byte(
				`{"mode":"url","message":"m","url":"https://example.com/","elicitationId":"known"}`)})
			_, _ = server.Read(t.Context()) // the response
			for _, id := range []string{"unknown", "known", "known", ""} {
				_ = server.Write(t.Context(), &jsonrpc.Message{Method: "notifications/elicitation/complete", Params: fmt.Appendf(nil, `{"elicitationId":%q}`, id)})
			}
		}()
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), opts)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !slices.Equal(got, []string{"known"}) {
			t.Errorf("got completions %q, want known", got)
		}
		c.Close()
		server.Close()
	})
}
