package conformance_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// startReplicas starts three processes of ./server that share a Redis server, behind nginx.
func startReplicas(t *testing.T) *fleet {
	t.Helper()
	needProgram(t, "nginx")
	f := &fleet{}
	f.startRedis(t)
	server := build(t, ".", "./server")
	for range 3 {
		addr, _ := strings.CutPrefix(start(t, server, "-store", f.store), "http://")
		f.addrs = append(f.addrs, strings.TrimSuffix(addr, "/mcp"))
	}
	f.balance(t, "nginx")
	return f
}

// inTurn fails the test unless nginx has sent each request to the next process: all have served the
// same number. Requests are logged when they end, and some may not have ended.
func (f *fleet) inTurn(t *testing.T) {
	t.Helper()
	served := map[string]int{}
	for addr := range strings.Lines(string(must(os.ReadFile(f.log))(t))) {
		served[strings.TrimSpace(addr)]++
	}
	t.Logf("requests served by each process: %v", served)
	for _, addr := range f.addrs {
		if n := served[addr]; n < 10 || n+10 < served[f.addrs[0]] || len(served) != len(f.addrs) {
			t.Errorf("requests served by each process: %v, want the same number for each of %q", served, f.addrs)
		}
	}
}

// TestServerConformanceOfReplicas runs the suites against three processes, each request at the next, with the
// results of TestServerConformance.
func TestServerConformanceOfReplicas(t *testing.T) {
	needNode(t)
	for _, run := range serverRuns {
		t.Run(run.name, func(t *testing.T) {
			f := startReplicas(t)
			runSuite(t, run, f.url)
			f.inTurn(t)
		})
	}
}

// TestOfficialClientsWorkWithReplicas runs the clients of other SDKs, in each revision that they speak, against
// three processes, each request at the next.
func TestOfficialClientsWorkWithReplicas(t *testing.T) {
	f := startReplicas(t)
	for _, c := range append(officialClients,
		officialClient{name: "gosdk 2025-06-18", revision: "2025-06-18", connect: connectGoSDK("2025-06-18")}) {
		t.Run(c.name, func(t *testing.T) {
			plan := gatewayPlan{Kind: "http", URL: f.url, Plain: true, ID: c.name, Root: "file://" + t.TempDir(),
				Servers: []plannedServer{{"fixtures", "fixtures"}}}
			ours := dial(t.Context(), t, overHTTP(f.url)(t), newHost().options(t, c.revision))
			want := listDirectly(t.Context(), t, ours)
			j := &judge{t: t}
			j.report(c.run(t, plan), plan, want, c.revision, c.lossy)
			t.Log(fmt.Sprintf("%d of %d checks passed", j.passed, j.checks))
		})
	}
	f.inTurn(t)
}

// TestOfficialClientsWorkWithReplicasOfServe runs the official TypeScript clients against three processes of
// patchbay serve, over each HTTP transport.
func TestOfficialClientsWorkWithReplicasOfServe(t *testing.T) {
	needNode(t)
	f := startFleet(t, "nginx", build(t, "..", "./gateway/cmd/patchbay"), "serve", "--insecure-no-auth", "--quiet")
	for _, c := range serveClients(f.url) {
		t.Run(c.name, func(t *testing.T) { c.check(t) })
	}
	f.inTurn(t)
}
