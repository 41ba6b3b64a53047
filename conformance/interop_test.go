package conformance_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// A clientReport is the output of clients/exercise.mjs.
type clientReport struct {
	Tools []string
	Add   struct {
		Text       string
		Structured json.RawMessage
	}
	Wrong struct {
		IsError bool
		Text    string
	}
	Who       struct{ Revision, Client string }
	Progress  []float64
	Count     string
	Greet     string
	Deploy    string
	Summarize string
	Resources []string
	Templates []string
	Read      string
	Guide     string
	Missing   int
	Prompts   []string
	Prompt    string
	Languages []string
	Cities    []string
	Updated   string
}

// A serveClient is an official TypeScript client of patchbay serve, over one transport.
type serveClient struct {
	name, revision string
	notFound       int // the code of the error for an unknown resource
	args           []string
}

// serveClients returns the clients over each HTTP transport.
func serveClients(url string) []serveClient {
	return []serveClient{
		{"session over HTTP", "2025-11-25", -32002, []string{"clients/session.mjs", "http", url}},
		{"session over HTTP+SSE", "2025-11-25", -32002, []string{"clients/session.mjs", "sse", url}},
		{"modern over HTTP", "2026-07-28", -32602, []string{"clients/modern.mjs", "http", url}},
	}
}

func (c serveClient) check(t *testing.T) {
	report := exercise(t, c.args...)
	checkReport(t, report, c.revision, c.notFound)
	if report.Who.Revision != c.revision || !strings.HasPrefix(report.Who.Client, "typescript-") {
		t.Errorf("who_am_i: got %+v, want %s and the client", report.Who, c.revision)
	}
}

// TestOfficialClientsWorkWithServe runs the official TypeScript clients against patchbay serve, in
// both eras.
func TestOfficialClientsWorkWithServe(t *testing.T) {
	needNode(t)
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	stdio := []string{"stdio", patchbay, "serve", "--stdio"}
	for _, c := range append(serveClients(start(t, patchbay, "serve", "--insecure-no-auth", "--addr", "127.0.0.1:0")),
		serveClient{"session over stdio", "2025-11-25", -32002, append([]string{"clients/session.mjs"}, stdio...)},
		serveClient{"modern over stdio", "2026-07-28", -32602, append([]string{"clients/modern.mjs"}, stdio...)},
	) {
		t.Run(c.name, func(t *testing.T) { c.check(t) })
	}
}

// exercise runs an official client and returns its report.
func exercise(t *testing.T, args ...string) (report clientReport) {
	t.Helper()
	out, err := node(t, 30*time.Second, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return report
}

// TestOfficialClientsWorkThroughBridge runs the official TypeScript clients against patchbay bridge,
// whose server is a command or a URL and has each era.
func TestOfficialClientsWorkThroughBridge(t *testing.T) {
	needNode(t)
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	remote := start(t, patchbay, "serve", "--insecure-no-auth", "--addr", "127.0.0.1:0")
	for _, upstream := range []string{"2025-11-25", "2026-07-28"} {
		local := start(t, patchbay, "bridge", "--insecure-no-auth", "--http", "127.0.0.1:0", "--revision", upstream,
			"--", patchbay, "serve", "--stdio")
		stdio := []string{"stdio", patchbay, "bridge", remote, "--revision", upstream}
		for _, c := range []struct {
			name, script, revision string
			notFound               int
			args                   []string
		}{
			{"session over HTTP to a command", "clients/session.mjs", "2025-11-25", -32002, []string{"http", local}},
			{"session over HTTP+SSE to a command", "clients/session.mjs", "2025-11-25", -32002, []string{"sse", local}},
			{"session over stdio to a URL", "clients/session.mjs", "2025-11-25", -32002, stdio},
			{"modern over HTTP to a command", "clients/modern.mjs", "2026-07-28", -32602, []string{"http", local}},
			{"modern over stdio to a URL", "clients/modern.mjs", "2026-07-28", -32602, stdio},
		} {
			t.Run(c.name+" of "+upstream, func(t *testing.T) {
				report := exercise(t, append([]string{c.script}, c.args...)...)
				checkReport(t, report, min(c.revision, upstream), c.notFound)
				if report.Who.Revision != upstream || report.Who.Client != "patchbay" {
					t.Errorf("who_am_i: got %+v, want %s and the bridge", report.Who, upstream)
				}
			})
		}
	}
}

// checkReport checks what a client has seen. Client and server have at least the revision.
func checkReport(t *testing.T, s clientReport, revision string, notFound int) {
	t.Helper()
	check := func(what string, ok bool, got any) {
		t.Helper()
		if !ok {
			t.Errorf("%s: got %v", what, got)
		}
	}
	structured := string(s.Add.Structured)
	check("tools", slices.Contains(s.Tools, "roll_dice") && slices.IsSorted(s.Tools), s.Tools)
	check("add", s.Add.Text == "42", s.Add.Text)
	// A bare number is structured content only since 2026-07-28.
	check("structured", structured == map[bool]string{true: "42", false: "null"}[revision == "2026-07-28"], structured)
	check("invalid arguments", s.Wrong.IsError && strings.Contains(s.Wrong.Text, "sides"), s.Wrong)
	check("progress", slices.Equal(s.Progress, []float64{1, 2, 3}), s.Progress)
	check("count", s.Count == "counted to 3", s.Count)
	check("elicitation", s.Greet == "Hello, Ada!", s.Greet)
	check("confirmation", strings.Contains(s.Deploy, "staging") && strings.Contains(s.Deploy, `"release":"r`), s.Deploy)
	check("sampling", s.Summarize == "a summary", s.Summarize)
	check("resources", slices.Contains(s.Resources, "demo://counter") &&
		slices.Contains(s.Resources, "demo://guide/welcome.md"), s.Resources)
	check("templates", slices.Equal(s.Templates, []string{"demo://cities/{country}/{city}"}), s.Templates)
	check("read", s.Read == "kyoto is a city in japan.", s.Read)
	check("embedded file", strings.HasPrefix(s.Guide, "text/markdown"), s.Guide)
	check("not found", s.Missing == notFound, s.Missing) // Requirement: RES-08, RES-09
	check("prompts", slices.Equal(s.Prompts, []string{"review"}), s.Prompts)
	check("prompt", strings.Contains(s.Prompt, "go code") && strings.Contains(s.Prompt, "x := 1"), s.Prompt)
	check("completion", slices.Equal(s.Languages, []string{"python", "typescript"}), s.Languages)
	check("completion in context", slices.Equal(s.Cities, []string{"kyoto", "osaka", "tokyo"}), s.Cities)
	check("update", s.Updated == "demo://counter", s.Updated)
}
