package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func rpc(ctx context.Context, f *factory, c *mcp.Client, words []string) error {
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
	f.IO.Out.raw(result)
	return nil
}

func readParams(ctx context.Context, f *factory, word string) (text stdjson.RawMessage, err error) {
	if file, isFile := strings.CutPrefix(word, "@"); isFile || word == "-" {
		if text, err = f.IO.In.readSource(ctx, file); ctx.Err() != nil {
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
		return nil, usage(fmt.Errorf("params: %w", err))
	}
	return text, nil
}

func ping(ctx context.Context, f *factory, c *mcp.Client, _ []string) error {
	began := time.Now()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	took := milliseconds(time.Since(began))
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"ms": took, "revision": c.Revision()})
		return nil
	}
	f.IO.Out.printf("answered in %.1f ms, revision %s", took, c.Revision())
	return nil
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}
