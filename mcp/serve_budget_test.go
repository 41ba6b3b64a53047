//go:build !race

package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// What one call costs a server on a stream, in bursts of 16. Modern: the line, its message, the id with the method, the
// request with its call, its Notify, and the server's own. A session's adds the params with their envelope and the core's
// request. A 16th of what the read and the write of a burst cost comes to less than one.
func TestAllocationsOfACallOnAStream(t *testing.T) {
	for _, tc := range []struct {
		name    string
		opening []string
		call    func(id string) string
		budget  float64
	}{
		{"modern", nil, func(id string) string {
			return modernLine(id, "tools/call", `"name":"echo","arguments":{"message":"hello world"},`)
		}, 10},
		{"session", []string{initializeLine(`0`, "2025-11-25"), initializedLine}, func(id string) string {
			return plainLine(id, "tools/call", `{"name":"echo","arguments":{"message":"hello world"}}`)
		}, 12},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const burst = 16
			send, answers := serveEcho(t)
			for i, line := range tc.opening {
				send(line + "\n")
				if i == 0 {
					answers(1)
				}
			}
			var calls strings.Builder
			for id := range burst {
				calls.WriteString(tc.call(fmt.Sprint(id+1)) + "\n")
			}
			text := calls.String()
			got := testing.AllocsPerRun(200, func() {
				send(text)
				answers(burst)
			})
			if got := float64(int(got / burst)); got > tc.budget {
				t.Errorf("a call costs %v allocations, want at most %v", got, tc.budget)
			}
		})
	}
}

// serveEcho serves a tool on the pipes of a client, which sends text and reads so many answers.
func serveEcho(t *testing.T) (send func(text string), answers func(n int)) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: nowhereLog})
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	})
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- mcp.Serve(t.Context(), s, mcp.NewStream(in, out, nil), nil) }()
	t.Cleanup(func() {
		to.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		from.Close()
	})
	r, result := bufio.NewReader(from), []byte(`"result":`)
	send = func(text string) {
		if _, err := to.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	answers = func(n int) {
		for range n {
			if line, err := r.ReadSlice('\n'); err != nil || !bytes.Contains(line, result) {
				t.Fatalf("answered %q, %v", line, err)
			}
		}
	}
	return send, answers
}
