// Package rpc sends JSON-RPC requests.
package rpc

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewCmdRPC returns the command "rpc".
func NewCmdRPC(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.PlainTarget(f, "rpc METHOD [PARAMS]", "Send a JSON-RPC request", nil, call)
}

// NewCmdPing returns the command "ping".
func NewCmdPing(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.TargetCommand(f, "ping", "Send a ping and print the round-trip time", nil, &cmdutil.Invocation{},
		cmdutil.Bounded(ping))
}

// call sends a JSON-RPC request and prints its result.
func call(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	var params any
	if len(o.Words) > 1 {
		text, err := readParams(ctx, o.Factory, o.Words[1])
		if err != nil {
			return err
		}
		params = text
	}
	result, err := c.Do(ctx, o.Words[0], params)
	if err != nil {
		return err
	}
	o.IO.Out.Raw(result)
	return nil
}

func readParams(ctx context.Context, f *cmdutil.Factory, word string) (text stdjson.RawMessage, err error) {
	if file, isFile := strings.CutPrefix(word, "@"); isFile || word == "-" {
		if text, err = f.IO.In.ReadSource(ctx, file); ctx.Err() != nil {
			return nil, err
		}
	} else {
		text = []byte(word)
	}
	if err == nil {
		err = rawjson.Valid(text)
	}
	if err == nil && rawjson.Kind(text) != '{' {
		err = errors.New("want a JSON object")
	}
	if err != nil {
		return nil, exit.UsageError(fmt.Errorf("params: %w", err))
	}
	return text, nil
}

// ping sends a ping and prints the round-trip time.
func ping(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	began := time.Now()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	took := term.Milliseconds(time.Since(began))
	if o.PrintedJSON(map[string]any{"ms": took, "revision": c.Revision()}) {
		return nil
	}
	o.IO.Out.Printf("answered in %.1f ms, revision %s", took, c.Revision())
	return nil
}
