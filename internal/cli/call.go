package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func (p *program) callCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "call TARGET TOOL [ARGUMENT…] | call TOOL [ARGUMENT…] -- COMMAND…",
		Short: "Call a tool",
		Long: `Call a tool. What it gives is printed on standard output; if it fails, what it says about
that is printed on standard error, and the exit code is 5. See help arguments for the
arguments.`,
		Example: `  patchbay call http://127.0.0.1:8765/mcp add a=1 b=2
  patchbay call http://127.0.0.1:8765/mcp add '{"a": 1, "b": 2}'
  echo '{"a": 1}' | patchbay call http://127.0.0.1:8765/mcp add - b=2
  patchbay call deploy environment=staging --answers yes.json -- ./server`,
		ValidArgsFunction: p.completeNames(toolNames),
		RunE:              p.verb(p.call, 1, -1),
	}
}

func (p *program) call(ctx context.Context, c *mcp.Client, words []string) error {
	tools, err := collect(c.Tools(ctx))
	if err != nil {
		return err
	}
	tool, err := find(tools, words[0], "tool", toolName)
	if err != nil {
		return err
	}
	a, err := p.newArguments(ctx, words[1:], tool.InputSchema)
	if err != nil {
		return p.wrongArguments(ctx, err, "call", toolLine(tool))
	}
	result, err := c.CallTool(ctx, tool.Name, a.object())
	if err != nil {
		return err
	}
	p.screen.done()
	if err := p.showResult(result); err != nil {
		return err
	}
	if result.IsError {
		return &coded{exitTool, errTold}
	}
	return nil
}

// wrongArguments says how the arguments would be right.
func (p *program) wrongArguments(ctx context.Context, err error, verb, line string) error {
	if ctx.Err() != nil {
		return err
	}
	return usage(errors.Join(err, errors.New("usage: patchbay "+verb+" TARGET "+line)))
}

// showResult prints what a tool gave.
func (p *program) showResult(r *mcp.ToolResult) error {
	if p.flags.json {
		p.output.result(r)
		for _, c := range r.Content {
			if err := p.saveContent(c); err != nil {
				return err
			}
		}
		return nil
	}
	if r.IsError {
		p.screen.printf("patchbay: the tool failed")
		for _, c := range r.Content {
			p.screen.printf("%s", clean(describe(c)))
		}
		return nil
	}
	for _, c := range r.Content {
		if err := p.show(c); err != nil {
			return err
		}
	}
	if len(r.Content) == 0 && r.StructuredContent != nil {
		p.output.value(r.StructuredContent)
	}
	return nil
}
