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
			t.Run(s.name+"/"+w.name, func(t *testing.T) {
				sub, err := b.open(t.Context(), s, w)
				if err != nil {
					t.Fatal(err)
				}
				defer sub.stop()
				if f, err := sub.run(1); err != nil || f.cpu <= 0 {
					t.Errorf("CPU per call = %v, %v", f.cpu, err)
				}
			})
		}
	}
}

func TestUnavailableServersAreSkipped(t *testing.T) {
	t.Chdir(t.TempDir())
	b := &bench{servers: catalogueServers()}
	if err := b.findNode(t.Context(), true); err == nil {
		t.Error("no error for selected servers that cannot run")
	}
	if err := b.findNode(t.Context(), false); err != nil || len(b.notes) != 1 {
		t.Errorf("without the SDKs: %v, notes %q", err, b.notes)
	}
	for _, s := range b.servers {
		if s.script != "" {
			t.Errorf("%s is not skipped", s.name)
		}
	}
}

func TestSlowServersSuitFewerWorkloads(t *testing.T) {
	old := server{sessionOnly: true, slow: true}
	for w, suits := range map[*workload]bool{
		{call: load.Call{Era: echo.Session, Tool: echo.Tool}}:              true,
		{call: load.Call{Era: echo.Session, Tool: echo.Tool}, brisk: true}: false,
		{call: load.Call{Era: echo.Modern, Tool: echo.Tool}}:               false,
	} {
		if got := w.suits(old); got != suits {
			t.Errorf("suits(%+v) = %v", w, got)
		}
	}
	if (workload{call: load.Call{Tool: echo.CountTool}}).suits(server{echoes: true}) {
		t.Error("an echo-only server suits the counting workload")
	}
	if (workload{call: load.Call{Tool: echo.NotesTool}}).suits(server{losesNotes: true}) {
		t.Error("a server that loses notifications suits the notification workload")
	}
}
