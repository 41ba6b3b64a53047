package keys

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestKeysFlags(t *testing.T) {
	name := cmdutil.Invocation{Words: []string{"ann"}}
	cmdtest.Check(t, NewCmdNew, map[string]*NewOptions{
		"new ann --server a --server b --read-only": {Invocation: name, Servers: []string{"a", "b"}, ReadOnly: true,
			Expires: defaultKeyTime},
		"new ann --all-servers --only prompts,resources --principal p --expires never": {Invocation: name, All: true,
			Only: []string{"prompts", "resources"}, Subject: "p", Expires: "never"},
		"new ann --all-servers --console operator": {Invocation: name, All: true, Console: "operator",
			Expires: defaultKeyTime},
		"new ann --profile work": {Invocation: name, Profile: "work", Expires: defaultKeyTime},
		"new":                    nil,
	})
	cmdtest.Check(t, NewCmdSetSecret, map[string]*cmdutil.Invocation{"set ann": &name, "set ann value": nil})
}
