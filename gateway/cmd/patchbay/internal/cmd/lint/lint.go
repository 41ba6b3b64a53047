// Package lint reports mistakes of a server.
package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/lint"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxCostLines limits the tools in the table of costs. --json contains all tools.
const maxCostLines = 20

// Options are the flags of "lint".
type Options struct {
	cmdutil.Invocation
	Disable []string // rules
	FailOn  string   // a severity
	Quick   bool     // connect once
	Rules   bool     // list the rules, without a target
}

// A lintFinding is a finding in JSON.
type lintFinding struct {
	Rule     string        `json:"rule"`
	Severity lint.Severity `json:"severity"`
	Where    string        `json:"where"`
	Message  string        `json:"message"`
	Text     string        `json:"text"`
	Source   string        `json:"source"`
	Fix      string        `json:"fix"`
}

// A LintReport is the output of `patchbay lint --json`.
type LintReport struct {
	Target   string             `json:"target"`
	Server   mcp.Implementation `json:"server"`
	Revision string             `json:"revision"`
	Findings []lintFinding      `json:"findings"`
	Dropped  int                `json:"dropped,omitzero"` // findings beyond the limit
	Counts   struct {
		Errors   int `json:"errors"`
		Warnings int `json:"warnings"`
		Infos    int `json:"infos"`
	} `json:"counts"`
	Tokens struct {
		Estimate string      `json:"estimate"` // how tokens are estimated
		Total    int         `json:"total"`
		Tools    []lint.Cost `json:"tools"`
	} `json:"tokens"`
}

// tokenEstimate says how tokens are estimated; see lint.Tokens.
const tokenEstimate = "one token for 4 ASCII characters or 2 bytes of other characters of the name, description " +
	"and input schema; tokenizers differ by about 25%"

// NewCmdLint returns the command "lint".
func NewCmdLint(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	const short = "Check tools, schemas, prompts, resources and capabilities of a server"
	cmd := cmdutil.TargetCommand(f, "lint", short, nil, o, cmdutil.Or(run, cmdutil.Bounded(check)))
	cmd.Flags().StringArrayVar(&o.Disable, "disable", nil, "do not check this `rule`; may be repeated")
	cmd.Flags().StringVar(&o.FailOn, "fail-on", string(lint.Error),
		"exit with 1 for findings of this `severity` or worse: error or warning")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "connect once: do not try revisions and undeclared capabilities")
	cmd.Flags().BoolVar(&o.Rules, "rules", false, "list all rules, without a server")
	withTarget := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return exit.UsageError(err)
		}
		if o.Rules {
			return cmdutil.Or(run, showRules)(cmd.Context(), o)
		}
		return withTarget(cmd, args)
	}
	return cmd
}

func (o *Options) check() error {
	if o.FailOn != string(lint.Error) && o.FailOn != string(lint.Warning) {
		return fmt.Errorf("invalid --fail-on %q: want error or warning", o.FailOn)
	}
	for _, id := range o.Disable {
		if lint.Find(id) == nil {
			var ids []string
			for _, r := range lint.Rules() {
				ids = append(ids, r.ID)
			}
			return fmt.Errorf("--disable: %w (see patchbay lint --rules)", term.UnknownName("rule", id, ids))
		}
	}
	return nil
}

func showRules(_ context.Context, o *Options) error {
	if o.PrintedJSON(map[string]any{"rules": lint.Rules()}) {
		return nil
	}
	for _, r := range lint.Rules() {
		o.IO.Out.Printf("%-28s %-8s %s\n    source: %s\n    fix: %s", r.ID, r.Severity, r.Text, r.Source, r.Fix)
	}
	return nil
}

func check(ctx context.Context, o *Options, c *mcp.Client) error {
	server, err := lintServer(ctx, o.Factory, c, o.Quick)
	if err != nil {
		return err
	}
	found := lint.Check(server, o.Disable)
	r := newLintReport(o.Target.String(), c, found)
	if o.Flags.JSON {
		o.IO.Out.Value(r)
	} else {
		showLint(o.Factory, r)
	}
	if slices.ContainsFunc(found.Findings, func(finding lint.Finding) bool {
		return finding.Rule.Severity.AtLeast(lint.Severity(o.FailOn))
	}) {
		return &exit.Error{Code: exit.Failure, Err: exit.ErrShown}
	}
	return nil
}

// newLintReport returns the report of a check. The worst findings come first.
func newLintReport(target string, c *mcp.Client, found *lint.Report) *LintReport {
	r := &LintReport{Target: target, Server: c.ServerInfo(), Revision: c.Revision(), Findings: []lintFinding{},
		Dropped: found.Dropped}
	for _, severity := range []lint.Severity{lint.Error, lint.Warning, lint.Info} {
		for _, one := range found.Findings {
			if rule := one.Rule; rule.Severity == severity {
				r.Findings = append(r.Findings, lintFinding{rule.ID, severity, one.Where, one.Message, rule.Text,
					rule.Source, rule.Fix})
			}
		}
	}
	for _, one := range r.Findings {
		switch one.Severity {
		case lint.Error:
			r.Counts.Errors++
		case lint.Warning:
			r.Counts.Warnings++
		default:
			r.Counts.Infos++
		}
	}
	r.Tokens.Estimate = tokenEstimate
	r.Tokens.Tools = slices.Clone(found.Costs)
	for _, cost := range found.Costs {
		r.Tokens.Total += cost.Tokens
	}
	slices.SortStableFunc(r.Tokens.Tools, func(a, b lint.Cost) int { return cmp.Compare(b.Tokens, a.Tokens) })
	return r
}

func showLint(f *cmdutil.Factory, r *LintReport) {
	explained := map[string]bool{} // a rule is explained once
	for _, one := range r.Findings {
		f.IO.Out.Printf("%-8s %s: %s  [%s]", one.Severity, term.CleanLine(one.Where), term.CleanLine(one.Message),
			one.Rule)
		if !explained[one.Rule] {
			explained[one.Rule] = true
			f.IO.Out.Printf("    rule: %s\n    source: %s\n    fix: %s", one.Text, one.Source, one.Fix)
		}
	}
	if r.Dropped > 0 {
		f.IO.Out.Printf("and %s more", term.Counted(r.Dropped, "finding"))
	}
	if len(r.Tokens.Tools) > 0 {
		f.IO.Out.Printf("%s cost about %d tokens:", term.Counted(len(r.Tokens.Tools), "tool"), r.Tokens.Total)
	}
	for i, cost := range r.Tokens.Tools {
		if i == maxCostLines {
			f.IO.Out.Printf("  and %s more", term.Counted(len(r.Tokens.Tools)-i, "tool"))
			break
		}
		f.IO.Out.Printf("  %6d tokens  %8s  %s", cost.Tokens, term.FormatBytes(cost.Bytes),
			term.Shorten(term.CleanLine(cost.Name), term.MaxNameShown))
	}
	if len(r.Tokens.Tools) > 0 {
		f.IO.Out.Printf("  (%s)", tokenEstimate)
	}
	f.IO.Out.Printf("%s, %s, %s; revision %s", term.Counted(r.Counts.Errors, "error"), term.Counted(r.Counts.Warnings,
		"warning"), term.Counted(r.Counts.Infos, "info"), r.Revision)
}
