// Package testhome is the former place of package mcptest/testhome.
package testhome

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// Main calls [testhome.Main].
func Main(m *testing.M, run func(*testing.M) int) int { return testhome.Main(m, run) }
