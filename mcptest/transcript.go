package mcptest

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

var update = flag.Bool("update", false, "rewrite the golden files instead of comparing with them")

// record adds a message to the transcript.
func (c *Client) record(side string, m *jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wire = append(c.wire, "-- "+side+" --\n"+string(jsonrpc.Append(nil, m))+"\n")
}

// varying matches values that differ between runs, such as sealed state and random ids.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"requestState":"[^"]*"`), `"requestState":"…"`},
	{regexp.MustCompile(`"nextCursor":"[^"]*"`), `"nextCursor":"…"`},
	{regexp.MustCompile(`"cursor":"[^"]*"`), `"cursor":"…"`},
	{regexp.MustCompile(`"elicitationId":"[^"]*"`), `"elicitationId":"…"`},
	{regexp.MustCompile(`"id":"[^"]{26}"`), `"id":"…"`}, // of a server's request: 128 random bits
	{regexp.MustCompile(`"incident":"[^"]*"`), `"incident":"…"`},
}

// Transcript returns all messages so far, in the order in which they were sent and received. Values
// that differ between runs, such as sealed state, are replaced with "…".
func (c *Client) Transcript() string {
	c.mu.Lock()
	text := strings.Join(c.wire, "")
	c.mu.Unlock()
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	return text
}

// Golden compares text, such as a [Client.Transcript], with a file. With the flag -update it writes
// the file instead.
func Golden(t testing.TB, file, text string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (run with -update after a wanted change). Got:\n%s", file, text)
	}
}
