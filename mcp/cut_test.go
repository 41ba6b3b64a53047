package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A cutWriter writes a number of bytes and then closes the stream.
type cutWriter struct {
	io.WriteCloser
	mu   sync.Mutex
	left int
	sent int
}

func (c *cutWriter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(p), c.left)
	c.left -= n
	c.sent += n
	if _, err := c.WriteCloser.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		c.Close()
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// cutAfter runs do with a client whose stream ends after n bytes in one direction. It returns the
// error of do and the
// number of bytes that were sent in that direction.
func cutAfter(
	t *testing.T, h mcp.Handler, revision string, n int, toServer bool,
	do func(ctx context.Context, c *mcp.Client) error,
) (sent int, err error) {
	clientReads, serverWrites := io.Pipe()
	serverReads, clientWrites := io.Pipe()
	cut := &cutWriter{WriteCloser: serverWrites, left: n}
	var near, far io.WriteCloser = clientWrites, cut
	if toServer {
		cut.WriteCloser = clientWrites
		near, far = cut, serverWrites
	}
	var served sync.WaitGroup
	served.Go(func() {
		_ = mcp.Serve(context.Background(), h, mcp.NewStreamConn(serverReads, far, nil),
			&mcp.ServeOptions{Logger: discardLogger()})
	})
	defer served.Wait()
	elicit := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"Ada","value":true}`)}, nil
	}
	opts := &mcp.ClientOptions{Revision: revision, Logger: discardLogger(), Elicit: elicit}
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(clientReads, near, nil)), opts)
	if err != nil {
		return cut.sent, err
	}
	err = do(t.Context(), c)
	cut.mu.Lock()
	sent = cut.sent
	cut.mu.Unlock()
	return sent, errors.Join(err, c.Close())
}

// A stream that ends after any number of bytes, in either direction, results in a response or a
// TransportError. The
// synctest bubble detects goroutines that do not end.
//
// Requirement: STDIO-17
func TestStreamsMayEndAfterAnyByte(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	exchanges := map[string]func(ctx context.Context, c *mcp.Client) error{
		"call": func(ctx context.Context, c *mcp.Client) error {
			got, err := mcp.CallTool[total](ctx, c, "add", sum{1, 2})
			if err == nil && got.Total != 3 {
				t.Errorf("got %v, want total 3", got)
			}
			return err
		},
		"input": func(ctx context.Context, c *mcp.Client) error {
			got, err := mcp.CallTool[string](ctx, c, "ask", nil)
			if err == nil && got != "Ada, true" {
				t.Errorf("got %q, want Ada, true", got)
			}
			return err
		},
		"progress": func(ctx context.Context, c *mcp.Client) error {
			ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
			_, err := c.CallTool(ctx, "steps", nil)
			return err
		},
		"pages": func(ctx context.Context, c *mcp.Client) error {
			for _, err := range c.Resources(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"read": func(ctx context.Context, c *mcp.Client) error {
			_, err := c.ReadResource(ctx, "mem://one")
			return err
		},
		"prompt": func(ctx context.Context, c *mcp.Client) error {
			_, err := c.GetPrompt(ctx, "greet", map[string]string{"who": "Ada"})
			return err
		},
	}
	const never = 1 << 30
	for _, revision := range []string{"2025-06-18", mcptest.Modern} {
		for name, do := range exchanges {
			for _, toServer := range []bool{false, true} {
				direction := map[bool]string{false: "responses", true: "requests"}[toServer]
				t.Run(revision+"/"+name+"/"+direction, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := calculator(t)
						whole, err := cutAfter(t, s, revision, never, toServer, do)
						if err != nil {
							t.Fatalf("without a cut: %v", err)
						}
						step := 7
						if name == "call" || name == "input" {
							step = 1
						}
						for n := 0; n < whole; n += step {
							_, err := cutAfter(t, s, revision, n, toServer, do)
							var failed *mcp.TransportError
							switch {
							// a protocol error is a response too
							case err == nil, errors.As(err, &failed), errors.As(err, new(*mcp.Error)):
							default:
								t.Errorf("cut after %d of %d bytes: got %v, want a response or a TransportError", n,
									whole, err)
							}
							if errors.As(err, &failed) && failed.Err == nil {
								t.Errorf("cut after %d bytes: the error has no cause", n)
							}
						}
					})
				})
			}
		}
	}
}
