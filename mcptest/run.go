package mcptest

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Transports that a test body runs over.
const (
	InMemory = "in-memory" // mcp.Pipe
	Stdio    = "stdio"     // lines of JSON over byte pipes
	HTTP     = "http"      // Streamable HTTP; HTTP+SSE for 2024-11-05
	Replicas = "replicas"  // HTTP, each request at the next of three processes that share sessions
)

// Modern is the first revision without sessions.
const Modern = "2026-07-28"

// Transports returns the transports that a test body runs over.
func Transports() []string { return []string{InMemory, Stdio, HTTP, Replicas} }

// Revisions returns the revisions of the protocol, oldest first.
func Revisions() []string {
	return []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", Modern}
}

// A Combination is a transport and a revision.
type Combination struct {
	Transport string
	Revision  string
}

// String returns the combination as the name of a subtest.
func (on Combination) String() string { return on.Transport + "/" + on.Revision }

// OverHTTP reports whether the transport is HTTP, to a single process or to several.
func (on Combination) OverHTTP() bool { return on.Transport == HTTP || on.Transport == Replicas }

// Modern reports whether the revision works without sessions.
func (on Combination) Modern() bool { return on.Revision >= Modern }

// Since reports whether the revision is the given revision or newer.
func (on Combination) Since(revision string) bool { return on.Revision >= revision }

// Combinations returns all transports with all revisions.
func Combinations() []Combination {
	var all []Combination
	for _, transport := range Transports() {
		for _, revision := range Revisions() {
			all = append(all, Combination{transport, revision})
		}
	}
	return all
}

// Since returns all transports with the given and newer revisions.
func Since(revision string) []Combination {
	return slices.DeleteFunc(Combinations(), func(on Combination) bool { return !on.Since(revision) })
}

// Before returns all transports with the revisions older than the given revision.
func Before(revision string) []Combination {
	return slices.DeleteFunc(Combinations(), func(on Combination) bool { return on.Since(revision) })
}

// RunClient runs body as a subtest for every transport and revision, each with an [mcp.Client] of
// its own, as programs use it. The server's messages are validated, see [SchemaDir], unless opts
// contains extensions. The handler is shared by all; opts may be nil, see [Dial].
func RunClient(t *testing.T, h mcp.Handler, opts *mcp.ClientOptions, body func(t *testing.T, c *mcp.Client)) {
	t.Helper()
	for _, on := range Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			handlers := new(tracker)
			inBubble(t, handlers, func(t *testing.T) {
				t.Cleanup(drainTimers)
				t.Cleanup(func() { handlers.report(t) })
				body(t, dial(t, checkedTransport(t, handlers.track(h), on, opts), on, opts))
			})
		})
	}
}

// Run runs body as a subtest for every transport and revision, each with its own [Client], which
// shows the messages. The handler is shared by all.
func Run(t *testing.T, h mcp.Handler, body func(t *testing.T, c *Client)) {
	t.Helper()
	RunOn(t, h, Combinations(), nil, body)
}

// RunOn is [Run] for some combinations, with options for the clients, which may be nil.
func RunOn(t *testing.T, h mcp.Handler, on []Combination, opts *Options, body func(t *testing.T, c *Client)) {
	t.Helper()
	for _, combination := range on {
		t.Run(combination.String(), func(t *testing.T) {
			if opts != nil && opts.RealTime {
				NoLeaks(t)
				body(t, Connect(t, h, combination, opts))
				return
			}
			handlers := new(tracker)
			inBubble(t, handlers, func(t *testing.T) {
				t.Cleanup(drainTimers)
				t.Cleanup(func() { handlers.report(t) })
				c := connect(t, h, combination, opts, handlers)
				c.bubble = true
				body(t, c)
			})
		})
	}
}

// drainTimers waits until pending timers of the handler fired in the bubble: the handler is
// used in the next bubble.
func drainTimers() { time.Sleep(time.Minute) }

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
	{regexp.MustCompile(`"id":"([A-Z2-7]{8}-)?[^"]{26}"`), `"id":"…"`}, // of a request of a server, after the process
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
