package hosting

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

var (
	comparedServer = regexp.MustCompile(`\bserver\.name\s*[=!]=\s*(?:'([^']*)'|"([^"]*)")`)
	serverCompared = regexp.MustCompile(`(?:'([^']*)'|"([^"]*)")\s*[=!]=\s*server\.name\b`)
)

// A ruleWarning is about a rule of a policy that is valid.
type ruleWarning struct {
	rule int
	Text string
}

// WarnRules finds rules that compare the server with a name that is not configured.
func WarnRules(policy *gatewayconfig.Policy, servers []string) (all []ruleWarning) {
	if policy == nil {
		return nil
	}
	for i, rule := range policy.Rules {
		found := append(comparedServer.FindAllStringSubmatch(rule.When, -1),
			serverCompared.FindAllStringSubmatch(rule.When, -1)...)
		for _, m := range found {
			name := m[1] + m[2]
			if slices.Contains(servers, name) {
				continue
			}
			hint := ""
			if like := jsonschema.Nearest(name, servers); like != "" {
				hint = fmt.Sprintf(" (did you mean %q?)", like)
			}
			all = append(all, ruleWarning{i, fmt.Sprintf("rule %s compares server.name with %q, which is not "+
				"configured%s", rule.Name, term.Shorten(name, term.MaxNameShown), hint)})
		}
	}
	return all
}

// RecordedTool returns the approved definition of a tool, or nil if the state does not hold it.
func RecordedTool(ctx context.Context, f *cmdutil.Factory, c *Config, server, tool string) json.RawMessage {
	entry := c.Entries[server]
	if entry == nil {
		return nil
	}
	identity, same := entry.Identity(), 0
	for _, other := range c.Entries {
		if other.Identity() == identity {
			same++
		}
	}
	state, err := c.State(ctx, f)
	if err != nil {
		return nil
	}
	pins, err := pin.List(ctx, state)
	if err != nil {
		return nil
	}
	for _, pinned := range pins {
		// If several entries run the same program, only the first entry keeps its plain identity.
		if pinned.Server == server && pinned.Kind == pin.Tool && pinned.Name == tool && len(pinned.Approved) > 0 &&
			(pinned.Identity == identity || same > 1) {
			return pinned.Approved[0].JSON
		}
	}
	return nil
}
