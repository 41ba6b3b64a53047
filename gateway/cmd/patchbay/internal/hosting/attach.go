// Package hosting opens a host for all configured servers, with their policy, logins and audit log.
package hosting

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

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/adminclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (

	// attachTimeout bounds the first response of a gateway, which does no work before it.
	attachTimeout = 5 * time.Second
	// maxRefusal bounds the response of a gateway that does not let a client attach, in bytes.
	maxRefusal = 64 << 10
)

// An Attachment is a connection with the messages of an MCP client of the running gateway.
type Attachment struct {
	*net.UnixConn
	reader *bufio.Reader
}

// Read returns the bytes that arrived with the response first, and then the bytes of the socket.
func (a *Attachment) Read(b []byte) (int, error) { return a.reader.Read(b) }

// Attach connects to the running gateway as a client that works in the current directory, of a
// profile or a server, or of all servers for the zero Route. If no gateway runs, IsNoGateway
// reports true for the error.
func Attach(ctx context.Context, f *cmdutil.Factory, r gateway.Route) (*Attachment, error) {
	path, err := gatewayclient.SocketPath(f)
	if err != nil {
		return nil, err
	}
	conn, err := gatewayclient.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	a := &Attachment{reader: bufio.NewReader(conn)}
	a.UnixConn, _ = conn.(*net.UnixConn) // of a socket
	if err := a.upgrade(r); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return a, nil
}

// upgrade switches a connection from HTTP to MCP messages.
func (a *Attachment) upgrade(r gateway.Route) error {
	query := url.Values{}
	if dir, err := os.Getwd(); err == nil {
		query.Set("workspace", dir)
	}
	for name, value := range map[string]string{"profile": r.Profile, "server": r.Server} {
		if value != "" {
			query.Set(name, value)
		}
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
		return errors.Join(gatewayclient.ProblemError(adminclient.Problem(res.StatusCode, text)), err)
	}
	return a.SetDeadline(time.Time{})
}

// runningTransport returns a transport to the running gateway. Its requests fail without a gateway.
func runningTransport(f *cmdutil.Factory) mcp.SessionTransport {
	var stream io.ReadWriter
	a, err := Attach(context.Background(), f, gateway.Route{})
	switch {
	case err == nil:
		stream = a
	case gatewayclient.IsNoGateway(err):
		stream = failedStream{connect.ErrNoGateway}
	default:
		stream = failedStream{err}
	}
	transport, _ := mcp.NewConnTransport(mcp.NewStreamConn(stream, stream, nil)).(mcp.SessionTransport)
	return transport
}

// A failedStream is a stream that could not be opened.
type failedStream struct{ err error }

// Read fails.
func (s failedStream) Read([]byte) (int, error) {
	return 0, &exit.Error{Code: exit.Unreachable, Err: s.err}
}

// Write fails.
func (s failedStream) Write([]byte) (int, error) {
	return 0, &exit.Error{Code: exit.Unreachable, Err: s.err}
}

// runningNames completes the target @, the running gateway. It returns nil without a gateway.
func runningNames(ctx context.Context, f *cmdutil.Factory, typed string) []string {
	if !strings.HasPrefix(target.RunningName, typed) { //nolint:gocritic // a constant is completed
		return nil
	}
	if _, ok, err := gatewayclient.Find(ctx, f); err != nil || !ok {
		return nil
	}
	return []string{target.RunningName}
}
