package main

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// TestTypeScriptServersAnswer sends the requests of the load to the TypeScript
// servers.
func TestTypeScriptServersAnswer(t *testing.T) {
	node, _, err := findNode(t.Context())
	if err != nil {
		t.Skip(err)
	}
	b := &bench{node: node}
	for _, s := range catalogueServers() {
		for _, w := range catalogueWorkloads() {
			if s.script == "" || w.clients || w.measure != nil || w.width > 16 || !w.suits(s) {
				continue
			}
			if w.isGateway() || w.growth != nil || w.observed != nil {
				continue // these workloads name their programs
			}
			t.Run(s.name+"/"+w.name, func(t *testing.T) {
				sub, err := b.open(t.Context(), s, w)
				if err != nil {
					t.Fatal(err)
				}
				defer sub.stop()
				if f, err := sub.run(1); err != nil || f.cpu <= 0 {
					t.Errorf("CPU per call = %v, %v, want more than 0", f.cpu, err)
				}
			})
		}
	}
}

func TestUnavailableServersAreSkipped(t *testing.T) {
	t.Chdir(t.TempDir())
	b := &bench{servers: catalogueServers()}
	if err := b.findNode(t.Context(), true); err == nil {
		t.Error("findNode for selected servers without the SDKs: no error, want one")
	}
	if err := b.findNode(t.Context(), false); err != nil || len(b.notes) != 1 {
		t.Errorf("findNode without the SDKs: %v, notes %q, want one note", err, b.notes)
	}
	for _, s := range b.servers {
		if s.script != "" {
			t.Errorf("server %s is still selected, want it omitted", s.name)
		}
	}
}

func TestSlowServersSuitFewerWorkloads(t *testing.T) {
	sessionServer := server{sessionOnly: true, slow: true}
	for w, suits := range map[*workload]bool{
		{call: load.Call{Era: echo.Session, Tool: echo.Tool}}:                     true,
		{call: load.Call{Era: echo.Session, Tool: echo.Tool}, excludesSlow: true}: false,
		{call: load.Call{Era: echo.Modern, Tool: echo.Tool}}:                      false,
	} {
		if got := w.suits(sessionServer); got != suits {
			t.Errorf("suits(%+v) = %v, want %v", w, got, suits)
		}
	}
	if (workload{call: load.Call{Tool: echo.CountTool}}).suits(server{echoOnly: true}) {
		t.Error("suits() = true for an echo-only server in the counting workload, want false")
	}
	if (workload{call: load.Call{Tool: echo.NotificationsTool}}).suits(server{losesNotifications: true}) {
		t.Error("suits() = true for a server that loses notifications in their workload, want false")
	}
}
