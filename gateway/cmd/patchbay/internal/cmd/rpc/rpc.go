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
	return cmdutil.ServerCommand(f, "rpc METHOD [PARAMS]", "Send a JSON-RPC request", nil,
		func(ctx context.Context, c *mcp.Client, words []string) error { return call(ctx, f, c, words) })
}

// NewCmdPing returns the command "ping".
func NewCmdPing(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.BoundedCommand(f, "ping", "Send a ping and print the round-trip time", nil,
		func(ctx context.Context, c *mcp.Client, words []string) error { return ping(ctx, f, c, words) })
}

// call sends a JSON-RPC request and prints its result.
func call(ctx context.Context, f *cmdutil.Factory, c *mcp.Client, words []string) error {
	var params any
	if len(words) > 1 {
		text, err := readParams(ctx, f, words[1])
		if err != nil {
			return err
		}
		params = text
	}
	result, err := c.Do(ctx, words[0], params)
	if err != nil {
		return err
	}
	f.IO.Out.Raw(result)
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
func ping(ctx context.Context, f *cmdutil.Factory, c *mcp.Client, _ []string) error {
	began := time.Now()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	took := term.Milliseconds(time.Since(began))
	if f.Flags.JSON {
		f.IO.Out.Value(map[string]any{"ms": took, "revision": c.Revision()})
		return nil
	}
	f.IO.Out.Printf("answered in %.1f ms, revision %s", took, c.Revision())
	return nil
}
