package root

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const (
	observabilityGuide = "../../../../../../docs/observability.md"
	tracePicture       = "../../../../../../docs/images/trace.svg"
)

// One trace has the call of a client, the gateway, the server on stdio, its question, the answer and the
// result. -update draws it for the guide, which also has it as text.
func TestOneTraceFromClientToServer(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	guide, err := os.ReadFile(observabilityGuide)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ revision, want string }{
		{"2026-07-28", `
patchbay call                            INTERNAL patchbay
  tools/list                             CLIENT   patchbay tcp
    tools/list                           SERVER   patchbay-gateway tcp
  tools/call greet                       CLIENT   patchbay tcp input_required
    tools/call greet                     SERVER   patchbay-gateway tcp input_required
      tools/call greet                   CLIENT   patchbay-gateway pipe input_required
        tools/call greet                 SERVER   patchbay-demo pipe input_required
  elicitation/create                     SERVER   patchbay tcp
  tools/call greet                       CLIENT   patchbay tcp
    tools/call greet                     SERVER   patchbay-gateway tcp
      tools/call greet                   CLIENT   patchbay-gateway pipe
        tools/call greet                 SERVER   patchbay-demo pipe
`},
		{"2025-11-25", `
patchbay call                            INTERNAL patchbay
  tools/list                             CLIENT   patchbay tcp
    tools/list                           SERVER   patchbay-gateway tcp
  tools/call greet                       CLIENT   patchbay tcp
    tools/call greet                     SERVER   patchbay-gateway tcp input_required
      tools/call greet                   CLIENT   patchbay-gateway pipe input_required
        tools/call greet                 SERVER   patchbay-demo pipe input_required
    elicitation/create                   SERVER   patchbay tcp
    tools/call greet                     SERVER   patchbay-gateway tcp
      tools/call greet                   CLIENT   patchbay-gateway pipe
        tools/call greet                 SERVER   patchbay-demo pipe
`},
	} {
		tree := traceOfGreet(t, otlptest.New(t), test.revision)
		if got := "\n" + outline(tree); got != test.want {
			t.Errorf("%s: got the trace%s\nwant%s", test.revision, got, test.want)
		}
		if test.revision != "2026-07-28" {
			continue
		}
		picture := drawWaterfall("patchbay call … greet, through a gateway", tree)
		if update() {
			writeFile(t, tracePicture, picture)
		}
		checkPicture(t, picture)
		if !bytes.Contains(guide, []byte(test.want)) {
			t.Errorf("the guide does not have the trace%s", test.want)
		}
	}
}

// checkPicture checks that the picture in the guide has the spans of this run, at other times.
func checkPicture(t *testing.T, picture string) {
	t.Helper()
	old, err := os.ReadFile(tracePicture)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := rowsOf(picture), rowsOf(string(old)); got != want {
		t.Errorf("%s has the rows\n%s\nwant\n%s\nrun the test with -update", tracePicture, want, got)
	}
}

// traceOfGreet runs a client, which calls a tool that asks for a name, through a gateway, and returns the
// trace of the call. The client and the gateway have exporters of their own; the server is a process.
func traceOfGreet(t *testing.T, r *otlptest.Receiver, revision string) []spanNode {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, answers := filepath.Join(dir, "servers.json"), filepath.Join(dir, "answers.json")
	writeFile(t, file, fmt.Sprintf(`{"mcpServers": {"demo": {"command": %q,
		"args": ["serve", "--stdio", "--tasks", "memory"], "env": {%q: "1", "OTEL_EXPORTER_OTLP_ENDPOINT": %q,
		"OTEL_METRICS_EXPORTER": "none", "GORACE": "atexit_sleep_ms=0"}}}}`, exe, mainEnv, r.URL))
	const secret = "Ann-7f3c" // is in the answer and the result
	writeFile(t, answers, `{"elicitation": [{"field": "name", "content": {"name": "`+secret+`"}}]}`)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	g := startGateway(t, nil, "--config", file)
	call := append([]string{"call", g.url, "greet", "--answers", answers, "--revision", revision}, g.header()...)
	for range 2 { // the first one has started the server
		if o := patchbay(t, "", call...); o.status != exit.OK || strings.TrimSpace(o.stdout) != "Hello, "+secret+"!" {
			t.Fatalf("call: %+v", o)
		}
	}
	if o := g.stop(); o.status != exit.OK { // exports what is left, and so does the server
		t.Fatalf("gateway: %+v", o)
	}
	var last *otlptest.Span
	for _, s := range r.Spans() {
		if text := fmt.Sprint(s, s.Resource); strings.Contains(text, secret) || strings.Contains(text, g.key) {
			t.Errorf("a span has an answer, a result or a key: %s", text)
		}
		if s.Name == "patchbay call" && (last == nil || s.StartTimeUnixNano > last.StartTimeUnixNano) {
			last = s
		}
	}
	if last == nil {
		t.Fatalf("no span of the command among %d", len(r.Spans()))
	}
	tree, lost := traceTree(r.Spans(), last.TraceId)
	if len(lost) > 0 {
		t.Errorf("%s: %d spans have a parent that is not in the trace", revision, len(lost))
	}
	return tree
}
