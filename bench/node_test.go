package main

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// The TypeScript servers answer whatever the load asks of them.
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
					t.Errorf("CPU of a call is %v, %v", f.cpu, err)
				}
			})
		}
	}
}

func TestServersThatCannotRunAreLeftOut(t *testing.T) {
	t.Chdir(t.TempDir())
	b := &bench{servers: catalogueServers()}
	if err := b.findNode(t.Context(), true); err == nil {
		t.Error("servers that were asked for are left out")
	}
	if err := b.findNode(t.Context(), false); err != nil || len(b.notes) != 1 {
		t.Errorf("without the SDKs: %v, notes %q", err, b.notes)
	}
	for _, s := range b.servers {
		if s.script != "" {
			t.Errorf("%s takes part", s.name)
		}
	}
}

func TestServersThatAreSlowerSuitFewerWorkloads(t *testing.T) {
	old := server{sessionOnly: true, slow: true}
	for w, suits := range map[*workload]bool{
		{call: load.Call{Era: echo.Session, Tool: echo.Tool}}:              true,
		{call: load.Call{Era: echo.Session, Tool: echo.Tool}, brisk: true}: false,
		{call: load.Call{Era: echo.Modern, Tool: echo.Tool}}:               false,
	} {
		if got := w.suits(old); got != suits {
			t.Errorf("%+v suits: %v", w, got)
		}
	}
	if (workload{call: load.Call{Tool: echo.CountTool}}).suits(server{echoes: true}) {
		t.Error("a server that only echoes counts")
	}
	if (workload{call: load.Call{Tool: echo.NotesTool}}).suits(server{losesNotes: true}) {
		t.Error("a server that loses notes sends a thousand")
	}
}
