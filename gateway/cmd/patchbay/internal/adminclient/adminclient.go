// Package adminclient sends requests to the admin API of a gateway.
package adminclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/patchbay-mcp/patchbay/gateway"
)

// URL is the address of the admin API. The host is arbitrary, because clients connect to a socket
// or to a gateway in the same process.
const URL = "http://localhost/admin/v1"

// ErrEnded is the error of a request whose connection ended before the response.
var ErrEnded = errors.New("the gateway has ended the connection")

// maxResponse limits a response, in bytes. The largest responses contain tool definitions.
const maxResponse = 64 << 20

// Do sends a request with a client. body is encoded as JSON, nil for none, and the response is
// decoded into result, which may be nil. Do returns a [*gateway.Problem] for a response with an
// error, and [ErrEnded] if no complete response arrives.
func Do(ctx context.Context, client *http.Client, method, path string, body, result any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, URL+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, errors.Unwrap(err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case res.StatusCode >= http.StatusBadRequest:
		return Problem(res.StatusCode, text)
	case result == nil:
		return nil
	}
	return json.Unmarshal(text, result)
}

// Problem returns the problem in the text of a response with an error. If the text contains no
// problem, the detail names the status.
func Problem(status int, text []byte) *gateway.Problem {
	p := &gateway.Problem{}
	if json.Unmarshal(text, p) != nil || p.Detail == "" {
		p = &gateway.Problem{Code: "internal",
			Detail: fmt.Sprintf("the gateway has responded with the status %d", status)}
	}
	p.Status = status
	return p
}
