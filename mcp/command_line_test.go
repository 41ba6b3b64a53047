package mcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Requirement: STDIO-03
func TestLineReceivesExactLines(t *testing.T) {
	t.Parallel()
	s := roleCommand(t, "echo")
	s.MaxMessage = 1 << 10
	var lines []string
	s.Line = func(sent bool, text []byte) { // calls do not overlap
		lines = append(lines, fmt.Sprint(sent, " ", string(text)))
	}
	c := startServer(t, s)
	hello := &jsonrpc.Message{Method: "hello", Params: json.RawMessage(`{"n":1.0,  "s":"\u0041"}`)}
	for _, m := range []*jsonrpc.Message{hello, {Method: "long", Params: json.RawMessage(`"` + strings.Repeat("x", 2<<10) + `"`)}} {
		if err := c.Write(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := readMessage(t, c); err != nil || m.Method != "hello" {
		t.Fatalf("got %+v, %v; want the message back", m, err)
	}
	if m, err := readMessage(t, c); err == nil {
		t.Errorf("got %+v, want an error for a line over MaxMessage", m)
	}
	c.Close()
	const exact = ` {"jsonrpc":"2.0","method":"hello","params":{"n":1.0,  "s":"\u0041"}}`
	if len(lines) != 3 || lines[0] != "true"+exact || lines[2] != "false"+exact && lines[1] != "false"+exact {
		t.Errorf("got %.200q, want two sent lines and the first of them read", lines)
	}
}

// Requirement: STDIO-03
func TestLineReceivesOutputThatIsNoMessage(t *testing.T) {
	t.Parallel()
	s := roleCommand(t, "write-invalid")
	s.Logger = discardLogger()
	var lines []string
	s.Line = func(sent bool, text []byte) { lines = append(lines, fmt.Sprint(sent, " ", string(text))) }
	c := startServer(t, s)
	reads := 0
	for err := error(io.ErrNoProgress); err != nil; reads++ {
		_, err = readMessage(t, c)
	}
	c.Close()
	if len(lines) != reads || !strings.HasPrefix(lines[0], "false Welcome") || !strings.Contains(lines[reads-1], `"valid"`) {
		t.Errorf("got %d lines, the first %.60q, want the %d lines that were read", len(lines), lines[:1], reads)
	}
}
