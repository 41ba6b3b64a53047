package skills

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestVerifyFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdVerify, map[string]*VerifyOptions{
		"verify http://127.0.0.1:1/mcp":       {MaxBytes: maxVerified},
		"verify http://127.0.0.1:1/mcp skill": {MaxBytes: maxVerified, Invocation: cmdutil.Invocation{Words: []string{"skill"}}},
		"verify http://127.0.0.1:1/mcp a b":   nil,
	})
}
