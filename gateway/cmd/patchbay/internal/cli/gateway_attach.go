package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// runningName is the TARGET of the running gateway.
	runningName = "@"
	// attachTimeout bounds the first response of a gateway, which does no work before it.
	attachTimeout = 5 * time.Second
	// maxRefusal bounds the response of a gateway that does not let a client attach, in bytes.
	maxRefusal = 64 << 10
)

// An attachment is a connection with the messages of an MCP client of the running gateway.
type attachment struct {
	*net.UnixConn
	reader *bufio.Reader
}

// Read reads what came with the response first.
func (a *attachment) Read(b []byte) (int, error) { return a.reader.Read(b) }

// attach connects to the running gateway as a client that works in the current directory. The error is
// one of isNoGateway if there is none.
func attach(ctx context.Context, f *factory, profile string) (*attachment, error) {
	path, err := socketPath(f)
	if err != nil {
		return nil, err
	}
	conn, err := dialGateway(ctx, path)
	if err != nil {
		return nil, err
	}
	a := &attachment{reader: bufio.NewReader(conn)}
	a.UnixConn, _ = conn.(*net.UnixConn) // of a socket
	if err := a.upgrade(profile); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return a, nil
}

// upgrade makes a connection one with messages of MCP.
func (a *attachment) upgrade(profile string) error {
	query := url.Values{}
	if dir, err := os.Getwd(); err == nil {
		query.Set("workspace", dir)
	}
	if profile != "" {
		query.Set("profile", profile)
	}
	_ = a.SetDeadline(time.Now().Add(attachTimeout)) // fails on a closed connection, as the next call does
	_, err := io.WriteString(a.UnixConn, "GET /admin/v1/attach?"+query.Encode()+
		" HTTP/1.1\r\nHost: patchbay\r\nConnection: Upgrade\r\nUpgrade: mcp-stdio\r\n\r\n")
	if err != nil {
		return err
	}
	res, err := http.ReadResponse(a.reader, nil)
	if err != nil {
		return fmt.Errorf("attach to the gateway: %w", err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		text, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
		_ = res.Body.Close()
		return errors.Join(problemError(res.StatusCode, text), err)
	}
	return a.SetDeadline(time.Time{})
}

// attachStdio attaches a client on standard input and output to the running gateway. It leaves
// g.attached nil if there is none, or if it refuses the client: then this process serves it.
func attachStdio(f *factory, cmd *cobra.Command, args []string, g *gatewayRun) {
	if !g.stdio || g.own || len(args) > 0 || cmd.ArgsLenAtDash() >= 0 {
		return
	}
	a, err := attach(cmd.Context(), f, g.profile)
	switch {
	case err == nil:
		g.attached = a
	case !isNoGateway(err):
		f.IO.Err.printf("patchbay: does not use the running gateway: %s", cleanLine(err.Error()))
	}
}

var errGatewayEnded = errors.New("the gateway that served this client has ended: connect again, which serves " +
	"the client in a process of its own while no gateway is running")

// serveAttached passes messages between standard input and output and the gateway until one ends.
func serveAttached(ctx context.Context, f *factory, a *attachment) error {
	defer func() { _ = a.Close() }() // the gateway may have closed it
	ended, received := make(chan struct{}), make(chan error, 1)
	go func() { // ends with standard input, or the process
		_, _ = io.Copy(a.UnixConn, f.IO.In.r) // it fails if the gateway has ended, as reading does
		close(ended)
		_ = a.CloseWrite()
	}()
	go func() { // ends with the connection
		_, err := io.Copy(f.IO.Out.w, a)
		received <- err
	}()
	releaseCode()
	select {
	case err := <-received: // after the client has ended: the gateway has answered its requests
		select {
		case <-ended:
			return nil
		default:
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("pass messages to the client: %w", err)
		}
		return &coded{exitUnreachable, errGatewayEnded}
	case <-ctx.Done():
		return nil
	}
}

// runningTransport returns a transport to the running gateway. Without one, its requests fail.
func runningTransport(f *factory) mcp.SessionTransport {
	var stream io.ReadWriter
	a, err := attach(context.Background(), f, "")
	switch {
	case err == nil:
		stream = a
	case isNoGateway(err):
		stream = failedStream{errNoGateway}
	default:
		stream = failedStream{err}
	}
	transport, _ := mcp.NewConnTransport(mcp.NewStreamConn(stream, stream, nil)).(mcp.SessionTransport)
	return transport
}

// A failedStream is a stream that could not be opened.
type failedStream struct{ err error }

// Read fails.
func (s failedStream) Read([]byte) (int, error) { return 0, &coded{exitUnreachable, s.err} }

// Write fails.
func (s failedStream) Write([]byte) (int, error) { return 0, &coded{exitUnreachable, s.err} }

// runningNames completes the target of the running gateway, if there is one.
func runningNames(ctx context.Context, f *factory, typed string) []string {
	if !strings.HasPrefix(runningName, typed) {
		return nil
	}
	if _, ok, err := findRunning(ctx, f); err != nil || !ok {
		return nil
	}
	return []string{runningName}
}
