package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// allRevisions are the revisions of our client.
var allRevisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

// TestGatewayPeers uses servers of the other Go SDKs through a gateway, over each of their transports
// and in each era that they have, with our client of every revision.
func TestGatewayPeers(t *testing.T) {
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	var cells, passed atomic.Int64
	t.Run("all", func(t *testing.T) {
		for _, sdk := range []struct {
			name  string
			peers []peer
		}{{"gosdk", goSDK}, {"mcpgo", mcpGo}} {
			t.Run(sdk.name, func(t *testing.T) {
				t.Parallel()
				url, behind := servePeers(t, patchbay, sdk.name, sdk.peers)
				for _, p := range behind {
					for _, revision := range allRevisions {
						cells.Add(1)
						if t.Run(p.name+" used with "+revision, func(t *testing.T) {
							q := p.through(sdk.name, revision)
							q.exercise(t, sdk.name, overHTTP(url+"/s/"+p.id())(t))
						}) {
							passed.Add(1)
						}
					}
				}
			})
		}
	})
	t.Logf("%d cells, %d passed", cells.Load(), passed.Load())
}

// id returns the name of a server in the configuration.
func (p peer) id() string {
	return strings.NewReplacer(" ", "-", "+", "-").Replace(strings.ToLower(p.name))
}

// through returns what our client of a revision can do with the server behind a gateway.
func (p peer) through(sdk, revision string) peer {
	switch {
	case sdk == "mcpgo":
		p.can &^= sendsLogs // some arrive after the response, when no request is in progress that they belong to
	case p.path == "" && p.pin == "":
		// With one subscription, the server ends all others of its connection that concern lists
		// (go-sdk v1.8.0, subscriptionsListen). The gateway has several.
		p.can &^= sendsChanges
	}
	p.pin, p.revision, p.behind = revision, revision, true
	if revision < "2025-06-18" {
		p.can &^= sendsRequests // the revision has no elicitation
	}
	return p
}

// servePeers starts a gateway for a program of ./peers, and returns its URL and those servers that it
// has. A session of an old revision tests nothing more, since the gateway uses the newest.
func servePeers(t *testing.T, patchbay, sdk string, peers []peer) (url string, behind []peer) {
	binary := build(t, ".", "./peers/"+sdk)
	address := startPeer(t, exec.Command(binary, "-addr", "127.0.0.1:0"))
	servers, settings := map[string]any{}, map[string]any{}
	for _, p := range peers {
		if p.pin != "" && p.pin != "2025-11-25" {
			continue
		}
		behind = append(behind, p)
		switch p.path {
		case "":
			servers[p.id()] = map[string]any{"command": binary}
		case "/sse":
			servers[p.id()] = map[string]any{"type": "sse", "url": address + p.path}
		default:
			servers[p.id()] = map[string]any{"type": "http", "url": address + p.path}
		}
		era := "auto"
		if p.pin != "" {
			era = "session"
		}
		// Roots of the client, also to a server over HTTP. The servers change their lists.
		settings[p.id()] = map[string]any{"era": era, "roots": "pass", "trust": "insecureAll"}
	}
	return serveConfig(t, patchbay, map[string]any{"mcpServers": servers, "patchbay": map[string]any{"servers": settings}}), behind
}

// serveConfig starts a gateway that needs no key, and returns its URL.
func serveConfig(t *testing.T, patchbay string, config map[string]any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, must(json.Marshal(config))(t), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	url := start(t, patchbay, "gateway", "--config", file, "--addr", "127.0.0.1:0", "--insecure-no-auth")
	t.Log(fmt.Sprintf("the gateway serves %s after %v", url, time.Since(begin).Round(time.Millisecond)))
	return url
}
