package lint

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestLintFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdLint, map[string]*Options{
		"lint http://127.0.0.1:1/mcp --quick --fail-on warning": {Quick: true, FailOn: "warning"},
		"lint --rules": {Rules: true, FailOn: "error"},
		"lint http://127.0.0.1:1/mcp --fail-on info":            nil,
		"lint http://127.0.0.1:1/mcp --disable nothing-like-it": nil,
		"lint": nil,
	})
}
