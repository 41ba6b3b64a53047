package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"github.com/patchbay-mcp/patchbay/gateway"
)

// adminURL is the address of the admin API. The name of the host does not matter: connections are those
// of a socket.
const adminURL = "http://patchbay/admin/v1"

// maxAdminResponse bounds a response of a gateway, in bytes. The largest has definitions of tools.
const maxAdminResponse = 64 << 20

// A adminClient sends requests to the running gateway of a configuration.
type adminClient struct {
	http   *http.Client
	socket string
}

// runningGateway returns a client of the gateway that runs with the configuration of the command line. ok
// is false if none does.
func findRunning(ctx context.Context, f *factory) (c *adminClient, ok bool, err error) {
	path, err := socketPath(f)
	if err != nil {
		return nil, false, err
	}
	conn, err := dialGateway(ctx, path)
	switch {
	case isNoGateway(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("connect to the gateway at %s: %w", path, err)
	}
	_ = conn.Close() // each request has its own
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialGateway(ctx, path) }
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &adminClient{&http.Client{Transport: transport}, path}, true, nil
}

// isNoGateway reports whether an error of dialGateway says that no gateway is running.
func isNoGateway(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || isRefusedSocket(err)
}

// requireGateway returns a client of the running gateway.
func requireGateway(ctx context.Context, f *factory) (*adminClient, error) {
	c, ok, err := findRunning(ctx, f)
	if err == nil && !ok {
		err = errNoGateway
	}
	if err != nil {
		return nil, &coded{exitUnreachable, err}
	}
	return c, nil
}

// do sends a request, and decodes the response into result, which may be nil.
func (c *adminClient) do(ctx context.Context, method, path string, body, result any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, adminURL+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return &coded{exitUnreachable, fmt.Errorf("the gateway has ended the connection: %w", errors.Unwrap(err))}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAdminResponse))
	switch {
	case err != nil:
		return &coded{exitUnreachable, fmt.Errorf("the gateway has ended the connection: %w", err)}
	case res.StatusCode >= http.StatusBadRequest:
		return problemError(res.StatusCode, text)
	case result == nil:
		return nil
	}
	return json.Unmarshal(text, result)
}

// problemError returns the error of a response.
func problemError(status int, text []byte) error {
	p := &gateway.Problem{}
	if json.Unmarshal(text, p) != nil || p.Detail == "" {
		p = &gateway.Problem{Detail: fmt.Sprintf("the gateway has responded with the status %d", status)}
	}
	code := exitFailure
	switch status {
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusGatewayTimeout:
		code = exitTimeout
	case http.StatusBadGateway:
		code = exitUnreachable
	}
	return &coded{code, errors.New(p.Detail)}
}
