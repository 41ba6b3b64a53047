package wire_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Requirement: META-01, META-02
func TestKeysFollowTheGrammar(t *testing.T) {
	valid := []string{"a", "name", "a.b_c-d", "0", "x/y", "com.example/key", "com.example/", "a-b.c1/n.m",
		"io.modelcontextprotocol/ui", "progressToken"}
	invalid := []string{"", "/", "/name", "-a", "a-", "a b", ".a", "a.", "ä", "1a/x", "a-/x", "-a/x", "a..b/x", "a./x",
		".a/x", "a_b/x", "a/b/c", "a/-b", "a/b-", "a/ b", "a\x00"}
	for _, key := range valid {
		if !wire.ValidMetaKey(key) {
			t.Errorf("ValidMetaKey(%q) = false, want true", key)
		}
	}
	for _, key := range invalid {
		if wire.ValidMetaKey(key) {
			t.Errorf("ValidMetaKey(%q) = true, want false", key)
		}
	}
}

// Requirement: EXT-01
func TestExtensionIDsHaveAPrefix(t *testing.T) {
	for id, want := range map[string]bool{
		"io.modelcontextprotocol/ui": true, "com.example/x": true,
		"ui": false, "com.example/": false, "/ui": false, "": false, "a b/c": false, "a/b/c": false,
	} {
		if got := wire.ValidExtensionID(id); got != want {
			t.Errorf("ValidExtensionID(%q) = %v, want %v", id, got, want)
		}
	}
}

// Requirement: META-04, META-05
func TestPrefixesAreReservedByRevision(t *testing.T) {
	keys := []struct {
		key                                string
		june, november2025, anyApplication bool // reserved by each rule; by any rule
	}{
		{"modelcontextprotocol.io/x", true, false, true},
		{"mcp.dev/x", true, false, true},
		{"api.modelcontextprotocol.org/x", true, true, true},
		{"tools.mcp.com/x", true, true, true},
		{"io.modelcontextprotocol/x", false, true, true},
		{"dev.mcp/x", false, true, true},
		{"com.mcp.tools/x", true, true, true},
		{"a.b.mcp.c/x", true, false, true},
		{"com.example.mcp/x", false, false, false},
		{"com.example/x", false, false, false},
		{"com.mcpx/x", false, false, false},
		{"mcp", false, false, false},
		{"mcp/x", false, false, false},
		{"progressToken", false, false, true},
		{"traceparent", false, false, true},
	}
	for _, k := range keys {
		if got := wire.June2025.ReservesMeta(k.key); got != k.june {
			t.Errorf("%q reserved in 2025-06-18: %v, want %v", k.key, got, k.june)
		}
		for _, r := range []wire.Revision{wire.November2025, wire.July2026} {
			if got := r.ReservesMeta(k.key); got != k.november2025 {
				t.Errorf("%q reserved in %v: %v, want %v", k.key, r, got, k.november2025)
			}
		}
		if got := wire.ReservedMetaKey(k.key); got != k.anyApplication {
			t.Errorf("ReservedMetaKey(%q) = %v, want %v", k.key, got, k.anyApplication)
		}
		if wire.March2025.ReservesMeta(k.key) {
			t.Errorf("%q reserved in 2025-03-26: true, want false: it has no grammar of keys", k.key)
		}
	}
}
