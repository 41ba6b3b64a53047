// Package gatewayclient sends requests to the running gateway.
package gatewayclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/adminclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// ServerPath returns the path of a server in the admin API.
func ServerPath(name, rest string) string { return "/servers/" + url.PathEscape(name) + rest }

// HasEnded reports whether the gateway and its servers have ended, after the end of its socket.
func (c *Client) HasEnded(ctx context.Context) bool {
	conn, err := Dial(ctx, c.Socket)
	if err == nil {
		_ = conn.Close()
	}
	if !IsNoGateway(err) {
		return false
	}
	lock, err := lockSocket(c.Socket)
	if err == nil {
		_ = lock.Close() // the file is unchanged
	}
	return !errors.Is(err, ErrGatewayRuns)
}

// A Client sends requests to the running gateway of a configuration.
type Client struct {
	http   *http.Client
	Socket string
}

// Find returns a client of the gateway that runs with the configuration. ok is false without one.
func Find(ctx context.Context, f *cmdutil.Factory) (c *Client, ok bool, err error) {
	path, err := SocketPath(f)
	if err != nil {
		return nil, false, err
	}
	conn, err := Dial(ctx, path)
	switch {
	case IsNoGateway(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("connect to the gateway at %s: %w", path, err)
	}
	_ = conn.Close() // each request dials again
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, path) }
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &Client{&http.Client{Transport: transport}, path}, true, nil
}

// IsNoGateway reports whether an error of dialGateway says that no gateway is running.
func IsNoGateway(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || isRefusedSocket(err)
}

// Require returns a client of the running gateway.
func Require(ctx context.Context, f *cmdutil.Factory) (*Client, error) {
	c, ok, err := Find(ctx, f)
	if err == nil && !ok {
		err = connect.ErrNoGateway
	}
	if err != nil {
		return nil, &exit.Error{Code: exit.Unreachable, Err: err}
	}
	return c, nil
}

// HTTP returns the client of the connections to the gateway. Any host in its URLs would do.
func (c *Client) HTTP() *http.Client { return c.http }

// Do sends a request, and decodes the response into result, which may be nil.
func (c *Client) Do(ctx context.Context, method, path string, body, result any) error {
	err := adminclient.Do(ctx, c.http, method, path, body, result)
	var p *gateway.Problem
	switch {
	case errors.As(err, &p):
		return ProblemError(p)
	case errors.Is(err, adminclient.ErrEnded):
		return &exit.Error{Code: exit.Unreachable, Err: err}
	}
	return err
}

// ProblemError returns the error of a response, with the exit code of its status.
func ProblemError(p *gateway.Problem) error {
	code := exit.Failure
	switch p.Status {
	case http.StatusNotFound:
		code = exit.NotFound
	case http.StatusGatewayTimeout:
		code = exit.Timeout
	case http.StatusBadGateway:
		code = exit.Unreachable
	}
	return &exit.Error{Code: code, Err: errors.New(p.Detail)}
}
