package legacy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Open begins the session on a connection whose messages already go to [Client.Receive], and
// returns the result of server/discover. The Client owns the connection from then on, and closes it
// if Open fails. The error is that of the connection, a remote [*jsonrpc.Error] if the server
// refuses, or an error that says why the two share no revision. Open may be called once.
//
// Spec: basic/lifecycle#initialization
func (c *Client) Open(ctx context.Context, conn Conn) (json.RawMessage, error) {
	if err := c.attach(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if err := c.initialize(ctx, conn); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c.discovered, nil
}

func (c *Client) initialize(ctx context.Context, conn Conn) error {
	if c.offered.Modern() {
		return fmt.Errorf("protocol revision %s has no sessions", c.offered)
	}
	response, err := conn.RoundTrip(ctx, &jsonrpc.Message{Method: wire.MethodInitialize, Params: c.initializeParams()})
	switch {
	case err != nil:
		return err
	case response.Error != nil:
		return response.Error
	case jsonscan.Kind(response.Result) != '{':
		return fmt.Errorf("initialize: %w: it is not an object", ErrMalformed)
	}
	if c.rev, err = c.negotiated(response.Result); err != nil {
		return err
	}
	c.setServer(response.Result)
	close(c.opened)
	return conn.Send(ctx, &jsonrpc.Message{Method: wire.NotificationInitialized})
}

func (c *Client) initializeParams() json.RawMessage {
	info := c.cfg.Info
	if jsonscan.Kind(info) != '{' {
		info = json.RawMessage(defaultInfo)
	}
	params := appendMember([]byte{'{'}, []byte("protocolVersion"), jsonscan.AppendQuote(nil, c.offered.String()))
	params = appendMember(append(params, ','), []byte("capabilities"), c.declared)
	params = appendMember(append(params, ','), []byte("clientInfo"), projectImplementation(c.offered, info))
	return append(params, '}')
}

// negotiated returns the revision that the server chose, or an error if this client does not
// support it. Spec: basic/lifecycle#version-negotiation
func (c *Client) negotiated(result []byte) (wire.Revision, error) {
	const shown = 64 // bytes of the server's text; a version takes ten
	version, _ := jsonscan.Get(result, "protocolVersion")
	if jsonscan.Kind(version) != '"' {
		return 0, fmt.Errorf("initialize: %w: protocolVersion is not a string", ErrMalformed)
	}
	chosen := jsonscan.GetString(result, "protocolVersion")
	rev, known := wire.ParseRevision(chosen)
	if len(chosen) > shown {
		chosen = strings.ToValidUTF8(chosen[:shown], "") + "…"
	}
	switch {
	case !known:
		return 0, fmt.Errorf("unsupported protocol revision %q chosen by the server: want one of %s",
			chosen, sessionRevisions())
	case rev.Modern():
		return 0, fmt.Errorf("protocol revision %q chosen by the server has no sessions: want one of %s",
			chosen, sessionRevisions())
	case c.cfg.Pinned && rev != c.offered:
		return 0, fmt.Errorf("protocol revision %q chosen by the server: want %s", chosen, c.offered)
	}
	return rev, nil
}

// sessionRevisions lists the revisions with sessions, newest first.
func sessionRevisions() string {
	var versions []string
	for rev := wire.LatestLegacy(); rev != 0; rev-- {
		versions = append(versions, rev.String())
	}
	return strings.Join(versions, ", ")
}

// setServer stores the server's description in the form of a discover result. It drops malformed
// members: they do not prevent a session. Spec: server/discover (2026-07-28)
func (c *Client) setServer(result []byte) {
	declared, _ := jsonscan.Get(result, "capabilities")
	c.capabilities = serverCapabilities(c.rev, declared)
	c.lacks = lacking(c.rev, c.capabilities)
	c.server = parseCapabilities(c.capabilities)

	dst := appendMember([]byte(`{"resultType":"complete","ttlMs":0,"cacheScope":"private",`),
		[]byte("supportedVersions"), nil)
	dst = append(jsonscan.AppendQuote(append(dst, '['), c.rev.String()), `],`...)
	dst = appendMember(dst, []byte("capabilities"), c.capabilities)
	if instructions, ok := jsonscan.Get(result, "instructions"); ok && jsonscan.Kind(instructions) == '"' {
		dst = appendMember(append(dst, ','), []byte("instructions"), instructions)
	}
	info, _ := jsonscan.Get(result, "serverInfo")
	if jsonscan.Kind(info) == '{' {
		if info, err := boundedInfo(info); err == nil {
			dst = append(appendMember(append(dst, `,"_meta":{`...), []byte(wire.MetaServerInfo), info), '}')
		}
	}
	dst = append(dst, '}')
	c.discovered = dst
}
