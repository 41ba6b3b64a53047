// Package policy tests and explains the policy.
package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A policyCase is a request that a policy decides about.
type policyCase struct {
	Name       string            `json:"name,omitempty"`
	On         string            `json:"on,omitempty"` // default: call
	Server     string            `json:"server"`
	Target     string            `json:"target"`
	Method     string            `json:"method,omitempty"` // default: that of the kind
	Arguments  json.RawMessage   `json:"args,omitempty"`
	Definition json.RawMessage   `json:"definition,omitempty"`
	Result     json.RawMessage   `json:"result,omitempty"`
	Question   json.RawMessage   `json:"question,omitempty"`
	Recent     []string          `json:"recent,omitempty"`
	Subject    string            `json:"subject,omitempty"` // default: the local user
	Scopes     []string          `json:"scopes,omitempty"`
	Client     map[string]string `json:"client,omitempty"`
	Time       time.Time         `json:"time,omitzero"`
	Want       string            `json:"want,omitempty"`
	Rule       string            `json:"rule,omitempty"`
}

var policyMethods = map[string]string{"call": "tools/call", "read": "resources/read", "get": "prompts/get",
	"complete": "completion/complete", "event": "events/stream",
	"list": "tools/list", "result": "tools/call", "question": "tools/call"}

func (c *policyCase) action() *policy.Action {
	c.On = cmp.Or(c.On, "call")
	if c.Method == "" {
		c.Method = policyMethods[c.On]
	}
	if c.Time.IsZero() {
		c.Time = time.Now()
	}
	caller := &policy.Caller{}
	if c.Subject != "" {
		caller.Principal = &mcp.Principal{Subject: c.Subject, Scopes: c.Scopes}
	}
	return &policy.Action{Kind: policy.ActionKind(c.On), Method: c.Method, Caller: caller, Server: c.Server,
		Target:     c.Target,
		Client:     mcp.Implementation{Name: c.Client["name"], Version: c.Client["version"]},
		Definition: c.Definition, Arguments: c.Arguments, Result: c.Result, Question: c.Question,
		Recent: c.Recent, Time: c.Time}
}

// gatewayPolicy returns the policy of the configuration. The configuration is nil if it cannot be read.
func gatewayPolicy(f *cmdutil.Factory) (*celpolicy.Policy, *hosting.Config, error) {
	c, err := hosting.ReadHostConfig(f, "")
	if err != nil {
		return nil, nil, exit.UsageError(err)
	}
	compiled, err := celpolicy.New(c.File, nil)
	if err == nil && compiled == nil {
		err = errors.New("the settings of the configuration have no member policy")
	}
	if err != nil {
		err = exit.UsageError(err)
	}
	return compiled, c, err
}

// NewCmdPolicy returns the command "gateway policy" with its subcommands.
func NewCmdPolicy(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Test and explain the rules of the gateway (CEL, access control)",
		DisableFlagsInUseLine: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(cmdutil.Plain(f, "test [FILE]", "Compile the rules, and test them with the cases of a file",
		cobra.MaximumNArgs(1), test), NewCmdExplain(f, nil))
	return cmd
}

func test(ctx context.Context, o *cmdutil.Invocation) error {
	compiled, c, err := gatewayPolicy(o.Factory)
	if err != nil {
		return err
	}
	if settings, err := gatewayconfig.Read(c.File); err == nil {
		for _, w := range hosting.WarnRules(settings.Policy, c.File.Names()) {
			o.IO.Err.Printf("patchbay: warning: %s", term.CleanLine(w.Text))
		}
	}
	var cases []policyCase
	if len(o.Words) > 0 {
		if cases, err = readPolicyCases(o.Words[0]); err != nil {
			return exit.UsageError(err)
		}
	}
	return testPolicy(ctx, o.Factory, compiled, cases)
}

// maxPolicyCases bounds a file of cases, in bytes.
const maxPolicyCases = 16 << 20

func readPolicyCases(path string) (cases []policyCase, err error) {
	if info, err := os.Stat(path); err != nil || info.Size() > maxPolicyCases {
		return nil, errors.Join(err, fmt.Errorf("read the cases of %q: want a file of at most %d bytes", path,
			maxPolicyCases))
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	for i := range cases {
		if w := cases[i].Want; err == nil && !slices.Contains([]string{"allow", "ask", "deny", "hide"}, w) {
			err = fmt.Errorf("case %d: invalid \"want\" %.64q: must be allow, ask, deny or hide", i+1, w)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the cases of %q: %w", path, err)
	}
	return cases, nil
}

// A policyResult is the outcome of a case, in JSON.
type policyResult struct {
	Name   string   `json:"name,omitempty"`
	OK     bool     `json:"ok"`
	Do     string   `json:"do"`
	Rule   string   `json:"rule,omitempty"`
	Reason string   `json:"reason,omitempty"`
	DryRun []string `json:"dryRun,omitempty"`
}

func testPolicy(ctx context.Context, f *cmdutil.Factory, compiled *celpolicy.Policy, cases []policyCase) error {
	results, failed := []policyResult{}, 0
	for i := range cases {
		c := &cases[i]
		d := compiled.Decide(ctx, c.action())
		ok := d.Do.String() == c.Want && (c.Rule == "" || c.Rule == d.Rule)
		results = append(results, policyResult{c.Name, ok, d.Do.String(), d.Rule, d.Reason, d.DryRun})
		if ok {
			continue
		}
		failed++
		if !f.Flags.JSON {
			f.IO.Out.Printf("case %d %s: got %s by %s, want %s %s", i+1, term.CleanLine(c.Name), d.Do, RuleName(d.Rule),
				c.Want, term.CleanLine(c.Rule))
		}
	}
	if f.Flags.JSON {
		f.IO.Out.Value(map[string]any{"cases": results, "failed": failed})
	} else if failed == 0 {
		f.IO.Out.Printf("The rules are valid: %s passed.", term.Counted(len(cases), "case"))
	}
	if failed > 0 {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%d of %s failed", failed, term.Counted(len(cases),
			"case"))}
	}
	return nil
}

// RuleName returns the name of a rule for people.
func RuleName(name string) string {
	if name == "" {
		return "the default"
	}
	return "rule " + term.CleanLine(name)
}

// ExplainOptions are the flags of "gateway policy explain". The Words are the server and the name.
type ExplainOptions struct {
	cmdutil.Invocation
	On                       string // the kind of action
	Args, Definition, Result string // JSON objects
	Subject                  string
	Scopes, Recent           []string
}

// NewCmdExplain returns the command "gateway policy explain".
func NewCmdExplain(f *cmdutil.Factory, run cmdutil.Run[*ExplainOptions]) *cobra.Command {
	o := &ExplainOptions{}
	cmd := cmdutil.Command(f, "explain SERVER NAME", "Show which rule decides about a request, and why",
		cobra.ExactArgs(2), o, cmdutil.Or(run, explain))
	cmd.Flags().StringVar(&o.On, "on", "call",
		"the `kind` of action: call, read, get, complete, list, result or question")
	cmd.Flags().StringVar(&o.Args, "args", "", "the arguments of the request, a `JSON` object")
	cmd.Flags().StringVar(&o.Definition, "definition", "", "the definition of the tool, a `JSON` object")
	cmd.Flags().StringVar(&o.Result, "result", "", "the result, a `JSON` object, with --on result")
	cmd.Flags().StringVar(&o.Subject, "subject", "", "the `subject` of the caller; default: the local user")
	cmd.Flags().StringSliceVar(&o.Scopes, "scope", nil, "a `scope` of the caller")
	cmd.Flags().StringSliceVar(&o.Recent, "recent", nil,
		"a `server` whose results the caller received in the last 30 minutes")
	return cmd
}

func explain(ctx context.Context, o *ExplainOptions) error {
	c := &policyCase{On: o.On, Server: o.Words[0], Target: o.Words[1], Subject: o.Subject, Scopes: o.Scopes,
		Recent: o.Recent}
	for _, m := range []struct {
		flag, text string
		to         *json.RawMessage
	}{{"args", o.Args, &c.Arguments}, {"definition", o.Definition, &c.Definition}, {"result", o.Result, &c.Result}} {
		if m.text != "" && (!json.Valid([]byte(m.text)) || m.text[0] != '{') {
			return exit.UsageError(fmt.Errorf("invalid --%s %.64q: must be a JSON object", m.flag, m.text))
		}
		if m.text != "" {
			*m.to = json.RawMessage(m.text)
		}
	}
	if _, ok := policyMethods[c.On]; !ok {
		return exit.UsageError(fmt.Errorf(
			"invalid --on %.64q: must be call, read, get, complete, list, result or question", c.On))
	}
	compiled, conf, err := gatewayPolicy(o.Factory)
	if conf == nil {
		return err
	}
	setting := c.hiddenBy(conf.File)
	switch {
	case !conf.File.Has(c.Server):
		return exit.NotFoundError(term.UnknownName("server", c.Server, conf.File.Names()))
	case setting != "":
		if o.Flags.JSON {
			o.IO.Out.Value(map[string]any{"do": "hide", "setting": setting, "rules": []string{}})
		} else {
			o.IO.Out.Printf("Decision: hide from all callers, by the setting %s", term.CleanLine(setting))
		}
		return nil
	case err != nil:
		return err
	case c.Definition == nil && policyMethods[c.On] == policyMethods["call"]:
		if c.Definition = hosting.RecordedTool(ctx, o.Factory, conf, c.Server, c.Target); c.Definition == nil {
			o.IO.Err.Printf("patchbay: note: no definition of %s is recorded: annotations are null; "+
				"use --definition", term.Shorten(term.CleanLine(c.Target), term.MaxNameShown))
		}
	}
	explainPolicy(ctx, o.Factory, compiled, c)
	return nil
}

// hiddenBy returns the setting that hides the tool of the request from all callers, or "".
func (c *policyCase) hiddenBy(f *config.File) string {
	settings, err := f.Settings()
	if err != nil || !strings.HasPrefix(policyMethods[c.On], "tools/") {
		return ""
	}
	switch s := settings.Servers[c.Server]; {
	case s == nil: // the server is unknown
	case config.Match(s.Deny, c.Target):
		return "servers." + c.Server + ".deny"
	case s.Allow != nil && !config.Match(s.Allow, c.Target):
		return "servers." + c.Server + ".allow"
	}
	return ""
}

func explainPolicy(ctx context.Context, f *cmdutil.Factory, compiled *celpolicy.Policy, c *policyCase) {
	d, steps := compiled.Explain(ctx, c.action())
	if f.Flags.JSON {
		type step struct {
			Rule    string `json:"rule"`
			Do      string `json:"do,omitempty"`
			Mode    string `json:"mode,omitempty"`
			Matches bool   `json:"matches"`
			Error   string `json:"error,omitempty"`
		}
		all := []step{}
		for _, s := range steps {
			text := ""
			if s.Err != nil {
				text = s.Err.Error()
			}
			all = append(all, step{s.Rule, s.Do, s.Mode, s.Matches, text})
		}
		f.IO.Out.Value(map[string]any{"do": d.Do.String(), "rule": d.Rule, "reason": d.Reason, "channel": d.Channel,
			"dryRun": d.DryRun, "rules": all})
		return
	}
	for _, s := range steps {
		what := "does not match"
		if s.Matches {
			what = "matches: " + strings.TrimSpace(s.Do+" "+s.Mode)
		}
		if s.Err != nil {
			what += " (" + term.CleanLine(s.Err.Error()) + ")"
		}
		f.IO.Out.Printf("%s %s", RuleName(s.Rule), what)
	}
	text := fmt.Sprintf("Decision: %s by %s", d.Do, RuleName(d.Rule))
	if d.Reason != "" {
		text += ": " + term.CleanLine(d.Reason)
	}
	f.IO.Out.Printf("%s", text)
}
