package trust

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestTrustFlags(t *testing.T) {
	name := cmdutil.Invocation{Words: []string{"github"}}
	cmdtest.Check(t, NewCmdTrust, map[string]*Options{"trust": {}, "trust github --yes": {Invocation: name, Yes: true},
		"trust github --revoke": {Invocation: name, Revoke: true}, "trust a b": nil})
}
