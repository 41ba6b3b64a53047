package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxAttached bounds the clients that are attached. Each is a process of the user.
const maxAttached = 256

// attachProtocol is the name of the protocol in the header Upgrade.
const attachProtocol = "mcp-stdio"

func attachRoutes() []*adminRoute {
	route := getRoute("/attach", "Connect as an MCP client: with the header Upgrade: mcp-stdio, the connection "+
		"has the messages of the stdio transport after the response",
		func(*adminRequest, *attachQuery) (*noBody, error) { return nil, nil })
	route.stream, route.status = (*admin).attach, http.StatusSwitchingProtocols
	route.response = nil
	return []*adminRoute{route}
}

// An attachQuery specifies the servers and revision that a client uses.
type attachQuery struct {
	Profile   string `json:"profile,omitzero" jsonschema:"a profile of the configuration; default: all servers"`
	Server    string `json:"server,omitzero" jsonschema:"one server, with its names unchanged"`
	Workspace string `json:"workspace,omitzero" jsonschema:"absolute path of the directory that the client works in"`
}

// attach serves an MCP client on the connection of a request.
func (a *admin) attach(w http.ResponseWriter, r *adminRequest) {
	var q attachQuery
	if err := decodeQuery(r.Request, &q); err != nil {
		a.fail(w, problemOf(err))
		return
	}
	route := Route{Profile: q.Profile, Server: q.Server}
	err := a.gateway.check(route)
	switch {
	case err != nil:
		a.fail(w, problemf(http.StatusNotFound, "unknown_route", "%v", err))
		return
	case !strings.EqualFold(r.Header.Get("Upgrade"), attachProtocol):
		w.Header().Set("Upgrade", attachProtocol)
		a.fail(w, problemf(http.StatusUpgradeRequired, "upgrade_required", "want the headers Connection: Upgrade and "+
			"Upgrade: %s", attachProtocol))
		return
	case q.Workspace != "" && !filepath.IsAbs(q.Workspace) || strings.ContainsRune(q.Workspace, 0):
		a.fail(w, invalidParameter("invalid workspace %.100q: must be an absolute path",
			q.Workspace))
		return
	case !a.attached.add(maxAttached):
		a.fail(w, problemf(http.StatusServiceUnavailable, "too_many_clients", "%d clients are attached already",
			maxAttached))
		return
	}
	defer a.attached.done()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		a.fail(w, problemf(http.StatusInternalServerError, "internal", "attach: %v", err))
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{}) // clears the deadline of the HTTP request
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
		attachProtocol+"\r\n\r\n")
	if err != nil {
		return
	}
	stream := &attachedStream{Conn: conn, reader: buffered.Reader}
	err = a.gateway.serveStream(a.ctx, mcp.NewStreamConn(stream, stream, nil), route, q.Workspace)
	if err != nil && a.ctx.Err() == nil {
		a.gateway.opts.Logger.Debug("gateway: attached client ended", "error", err)
	}
}

// An attachedStream is a connection whose first bytes the HTTP server may have buffered.
type attachedStream struct {
	net.Conn
	reader *bufio.Reader
}

// Read returns the bytes that the HTTP server buffered before the bytes of the connection.
func (s *attachedStream) Read(b []byte) (int, error) { return s.reader.Read(b) }
