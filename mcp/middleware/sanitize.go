package middleware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

// defaultMaxResult is in bytes: more than the context of most models can hold.
const defaultMaxResult = 4 << 20

// SanitizeOptions configures [Sanitize]. The zero value is right for most servers.
type SanitizeOptions struct {
	// MaxResult is the maximum size of a result in bytes of JSON. A larger result of a tool becomes
	// a tool error, any other result an internal error. Default: 4 MiB.
	MaxResult int
}

// Sanitize returns a middleware that removes hidden characters from all text of results, errors and
// notifications. Models read hidden characters, but people do not see them. They are control
// characters except tab and line breaks, bidirectional controls, zero-width characters, tags,
// variation selectors, fillers, private-use characters and other characters that displays ignore.
// Joiners and variation selectors that emoji and scripts are written with stay. Sanitize also
// limits the size of results. A result with a removed character becomes an [mcp.RawResult]. opts
// may be nil.
//
// It is for servers that return text from other sources, such as web pages, mail and other servers.
// It does not remove instructions that people can read.
//
// Spec: server/tools, Security Considerations.
func Sanitize(opts *SanitizeOptions) mcp.Middleware {
	limit := defaultMaxResult
	if opts != nil && opts.MaxResult > 0 {
		limit = opts.MaxResult
	}
	return func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if notify := req.Notify; notify != nil {
				req.Notify = func(ctx context.Context, method string, params json.RawMessage) error {
					clean, err := cleanJSON(params)
					if err != nil {
						return fmt.Errorf("sanitize %s: %w", method, err)
					}
					return notify(ctx, method, clean)
				}
			}
			res, err := next.ServeMCP(ctx, req)
			if err != nil {
				return nil, cleanError(err)
			}
			return cleanResult(req, res, limit)
		})
	}
}

func cleanResult(req *mcp.Request, res mcp.Result, limit int) (mcp.Result, error) {
	if req.Method == "subscriptions/listen" {
		return res, nil // the subscription is open, and its result follows later
	}
	encoded, err := req.EncodeResult(res)
	if err != nil {
		return nil, err
	}
	if len(encoded) > limit {
		err := fmt.Errorf("the result has %d bytes, want at most %d", len(encoded), limit)
		if req.Method != "tools/call" {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text(err.Error())}, IsError: true}, nil
	}
	clean, err := cleanJSON(encoded)
	switch {
	case err != nil:
		return nil, fmt.Errorf("sanitize the result: %w", err)
	case bytes.Equal(clean, encoded):
		return res, nil
	}
	return mcp.RawResult(clean), nil
}

func cleanError(err error) error {
	var public *mcp.Error
	if !errors.As(err, &public) {
		return err
	}
	message := visible.Strip(public.Message)
	data, dataErr := cleanJSON(public.Data)
	if dataErr == nil && message == public.Message && bytes.Equal(data, public.Data) {
		return err
	}
	return &mcp.Error{Code: public.Code, Message: message, Data: data}
}

// cleanJSON removes hidden characters from all strings and names of a JSON value. If the value
// contains no hidden character, cleanJSON returns it unchanged. Two names of an object that become
// equal are an error.
func cleanJSON(value json.RawMessage) (json.RawMessage, error) {
	if _, found := visible.First(string(value)); !found && !bytes.Contains(value, []byte(`\u`)) {
		return value, nil
	}
	var out bytes.Buffer
	in, enc := jsontext.NewDecoder(bytes.NewReader(value)), jsontext.NewEncoder(&out)
	for {
		token, err := in.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimSpace(out.Bytes()), nil
		}
		if err != nil {
			return nil, err
		}
		if token.Kind() == '"' {
			token = jsontext.String(visible.Strip(token.String()))
		}
		if err := enc.WriteToken(token); err != nil {
			return nil, err
		}
	}
}
