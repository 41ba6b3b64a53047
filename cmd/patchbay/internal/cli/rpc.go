package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (p *program) rpcCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rpc TARGET METHOD [PARAMS] | rpc METHOD [PARAMS] -- COMMAND…",
		Short: "Send a JSON-RPC request",
		Long: `Send a JSON-RPC request of any method, and print its result as JSON in the format of the newest
revision. PARAMS is a JSON object, @file, or - for standard input. The _meta members that the
revision requires are added. -v shows the messages.`,
		Example: `  patchbay rpc http://127.0.0.1:8765/mcp tools/list
  patchbay rpc -v http://127.0.0.1:8765/mcp tools/call '{"name": "add", "arguments": {"a": 1, "b": 2}}'`,
		ValidArgsFunction: p.completeNames(nil),
		RunE:              p.verb(p.rpc, 1, 2),
	}
}

func (p *program) rpc(ctx context.Context, c *mcp.Client, words []string) error {
	var params any
	if len(words) > 1 {
		text, err := p.params(ctx, words[1])
		if err != nil {
			return err
		}
		params = text
	}
	result, err := c.Do(ctx, words[0], params)
	if err != nil {
		return err
	}
	p.output.raw(result)
	return nil
}

// params parses the params of a request.
func (p *program) params(ctx context.Context, word string) (text stdjson.RawMessage, err error) {
	file, isFile := strings.CutPrefix(word, "@")
	switch {
	case word == "-":
		if text, err = p.input.readAll(ctx); ctx.Err() != nil {
			return nil, err
		}
	case isFile:
		text, err = readFile(file)
	default:
		text = []byte(word)
	}
	if err == nil {
		err = jsonscan.Valid(text, jsonscan.Limits{})
	}
	if err == nil && jsonscan.Kind(text) != '{' {
		err = errors.New("want a JSON object")
	}
	if err != nil {
		return nil, usage(fmt.Errorf("params: %w", err))
	}
	return text, nil
}

func (p *program) pingCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "ping TARGET | ping -- COMMAND…",
		Short:             "Send a ping and print the round-trip time",
		Example:           `  patchbay ping http://127.0.0.1:8765/mcp`,
		ValidArgsFunction: p.completeNames(nil),
		RunE: p.verb(func(ctx context.Context, c *mcp.Client, _ []string) error {
			began := time.Now()
			if err := c.Ping(ctx); err != nil {
				return err
			}
			took := milliseconds(time.Since(began))
			if p.flags.json {
				p.output.value(map[string]any{"ms": took, "revision": c.Revision()})
				return nil
			}
			p.output.printf("answered in %.1f ms, revision %s", took, c.Revision())
			return nil
		}, 0, 0),
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}
