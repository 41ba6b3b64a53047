package conformance_test

import (
	"maps"
	"strings"
	"sync/atomic"
	"testing"
)

// notBehindGateway lists the scenarios that cannot pass through a gateway, with any server.
var notBehindGateway = map[string]string{
	"server-sse-polling": "the server ends the stream of a call and the client polls: the gateway polls itself, and keeps " +
		"its own stream open",
}

// notWithSession lists the scenarios of 2026-07-28 that cannot pass if the server has the session era.
var notWithSession = map[string]string{
	"input-required-result-basic-elicitation": "expects the key of the server's question; a server of the session era has none",
	"input-required-result-ignore-extra-params": "answers a question that was not asked, without its state: such a call " +
		"begins anew, and asks",
	"input-required-result-multiple-input-requests": "a server of the session era asks for roots once, since a session " +
		"tells it of changes",
	"server-stateless": "logging/setLevel of a client of 2026-07-28 reaches the server, which has it",
}

// notWithReference lists the scenarios whose fixtures the server everything does not have.
var notWithReference = func() map[string]string {
	all := map[string]string{"sep-2164-resource-not-found": "the server's error has no URI"}
	for _, name := range strings.Fields(`
	tasks-*
	completion-complete elicitation-sep1034-defaults elicitation-sep1330-enums
	http-custom-header-server-validation input-required-result-basic-list-roots
	input-required-result-basic-sampling input-required-result-capability-check
	input-required-result-missing-input-response input-required-result-multi-round
	input-required-result-multiple-input-requests input-required-result-non-tool-request
	input-required-result-request-state input-required-result-result-type input-required-result-tampered-state
	json-schema-2020-12 prompts-get-embedded-resource prompts-get-simple prompts-get-with-args
	prompts-get-with-image resources-read-binary resources-read-text resources-templates-read
	sep-2640-skills-directory sep-2640-skills-enumeration sep-2640-skills-manifest tools-call-audio
	tools-call-elicitation tools-call-embedded-resource tools-call-error tools-call-image
	tools-call-mixed-content tools-call-sampling tools-call-simple-text tools-call-with-logging
	tools-call-with-progress`) {
		all[name] = "the server has no fixture"
	}
	return all
}()

// TestGatewaySuite runs the official suites through /mcp/s/everything: over our server, in both eras,
// and over the reference server everything.
func TestGatewaySuite(t *testing.T) {
	nodeBin := needNode(t)
	patchbay, server := build(t, "..", "./gateway/cmd/patchbay"), build(t, ".", "./server")
	both := func(lists ...map[string]string) map[string]string {
		all := maps.Clone(notBehindGateway)
		for _, l := range lists {
			maps.Copy(all, l)
		}
		return all
	}
	legs := func(want [4]int, list map[string]string, more ...string) []suiteRun {
		args := func(args ...string) []string { return append(args, more...) }
		return []suiteRun{
			{"requirements 2025-11-25", next, args("--requirements", "2025-11-25"), want[0], list},
			{"requirements 2026-07-28", next, args("--requirements", "2026-07-28"), want[1], list},
			{"everything, both eras in one run", next, args("--suite", "all"), want[2], list},
			{"released suite", released, nil, want[3], list},
		}
	}
	var scenarios, passed atomic.Int64
	t.Run("all", func(t *testing.T) {
		for _, upstream := range []struct {
			name, era string
			entry     func(t *testing.T) map[string]any
			runs      []suiteRun
		}{
			{"modern server", "auto", ourServer(server), legs([4]int{32, 49, 63, 30}, both())},
			{"server of 2025-11-25", "session", ourServer(server), legs([4]int{32, 43, 58, 30}, both(notWithSession), "--timeout", "10000")},
			{"reference server everything", "auto", func(*testing.T) map[string]any {
				return map[string]any{"command": nodeBin, "args": []string{absolute(everything), "stdio"}}
			}, legs([4]int{11, 9, 15, 10}, both(notWithSession, notWithReference))},
		} {
			for _, run := range upstream.runs {
				t.Run(upstream.name+"/"+run.name, func(t *testing.T) {
					t.Parallel()
					settings := map[string]any{"era": upstream.era, "roots": "pass", "trust": "insecureAll"}
					url := serveConfig(t, patchbay, map[string]any{
						"mcpServers": map[string]any{"everything": upstream.entry(t)},
						"patchbay":   map[string]any{"servers": map[string]any{"everything": settings}},
					})
					all, ok := runSuite(t, run, url+"/s/everything")
					scenarios.Add(int64(all))
					passed.Add(int64(ok))
				})
			}
		}
	})
	t.Logf("%d scenarios run, %d passed", scenarios.Load(), passed.Load())
}

// ourServer returns a function that starts ./server and returns its entry of a configuration.
func ourServer(binary string) func(t *testing.T) map[string]any {
	return func(t *testing.T) map[string]any { return map[string]any{"url": start(t, binary)} }
}
