//go:build unix

package capture_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// TestProcessOutput starts a server that prints to the wrong streams and exits.
func TestProcessOutput(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(&capture.Options{Always: true})
	ring.SetMask(mask)
	const script = `read -r request; echo 'Welcome to plainsecret'; echo 'the key plainsecret is wrong' >&2; echo '{"jsonrpc": 1}'; exit 3`
	command := mcp.Command("/bin/sh", "-c", script)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	transport := ring.Connect(command, "srv", "")
	if c, err := mcp.Connect(t.Context(), transport, nil); err == nil {
		c.Close()
		t.Fatal("connected")
	}
	_ = transport.Close()
	if !strings.Contains(stderr.String(), "the key plainsecret is wrong") { // Close has ended the writer
		t.Errorf("got standard error %q, want the line", stderr.String())
	}
	q, _ := capture.ParseQuery("hop:process")
	found := ring.Find(q, 0, 10)
	if len(found) == 0 {
		t.Fatal("no process was recorded")
	}
	first := found[len(found)-1]
	_, frames, _ := ring.Get(first.ID)
	var got []string
	for _, f := range frames {
		got = append(got, string(f.Kind)+" "+f.Text)
	}
	slices.Sort(got) // the streams are read concurrently
	want := []string{"stderr the key [secret] is wrong", "stdout Welcome to [secret]", `stdout {"jsonrpc": 1}`}
	if !slices.Equal(got, want) || first.Target != "/bin/sh" || first.Server != "srv" {
		t.Errorf("got %+v with %q, want %q", first, got, want)
	}
	checkSecrets(t, ring)
}

// The lines of standard error are found without a search of the other exchanges, and are bounded.
func TestStderrReadsProcessesOnly(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(&capture.Options{Always: true})
	transport := ring.Connect(mcp.Command("/bin/sh", "-c", `read -r request; seq 300 >&2`), "srv", "")
	if c, err := mcp.Connect(t.Context(), transport, nil); err == nil {
		c.Close()
		t.Fatal("connected")
	}
	_ = transport.Close()
	take := ring.Frames("other")
	for i := range int64(3000) {
		call(take, i, "t", 1)
	}
	for text, want := range map[string]int{"server:srv": 200, "server:other": 0, "300": 2} { // Connect starts it twice
		q, err := capture.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(ring.Stderr(q, 200)); got != want {
			t.Errorf("%s: got %d lines, want %d", text, got, want)
		}
	}
}
