package run

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// fileInForce returns the configuration that is in force.
func (g *Run) fileInForce() *config.File {
	if now := g.inForce.Load(); now != nil {
		return now
	}
	return g.Config.File
}

// policyInForce returns the member policy of the settings, without secrets in the command of its
// hook.
func (g *Run) policyInForce(context.Context) (json.RawMessage, error) {
	settings, err := gatewayconfig.Read(g.fileInForce())
	if err != nil || settings.Policy == nil {
		return nil, err
	}
	shown := *settings.Policy
	if shown.Hook != nil {
		hook := *shown.Hook
		if hook.Command = target.PublicArguments(hook.Command); hook.URL != "" {
			hook.URL = target.PublicURL(hook.URL)
		}
		shown.Hook = &hook
	}
	return json.Marshal(&shown)
}

// explainer returns the Explainer of the policy in force, or of rules, whose hook is not asked.
func (g *Run) explainer(_ context.Context, rules json.RawMessage) (gateway.Explainer, error) {
	f, opts := g.fileInForce(), &celpolicy.Options{}
	if rules != nil {
		var err error
		text := slices.Concat([]byte(`{"mcpServers":{},"patchbay":{"policy":`), rules, []byte("}}"))
		if f, err = config.Parse(text); err != nil {
			return nil, refusedChange(http.StatusUnprocessableEntity, "invalid_policy", "%v", err)
		}
		opts.NoHook = true
	}
	compiled, err := celpolicy.New(f, opts)
	switch {
	case err != nil && rules != nil:
		return nil, refusedChange(http.StatusUnprocessableEntity, "invalid_policy", "%v", err)
	case err != nil:
		return nil, err
	case compiled == nil:
		return nil, refusedChange(http.StatusNotFound, "no_policy",
			"the settings of the configuration have no member policy")
	}
	return func(ctx context.Context, a *policy.Action) (policy.Decision, []gateway.RuleStep) {
		d, all := compiled.Explain(ctx, a)
		var steps []gateway.RuleStep
		for _, s := range all {
			step := gateway.RuleStep{Rule: s.Rule, Do: s.Do, Mode: s.Mode, Matches: s.Matches}
			if s.Err != nil {
				step.Error = s.Err.Error()
			}
			steps = append(steps, step)
		}
		return d, steps
	}, nil
}
