package driver

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Request is the part of an mcp.Request that transports and forwarders set and read. The method
// Driver of the request returns it.
type Request struct {
	// Envelope contains the members of `_meta`, which mcp.NewRequest has opened.
	Envelope
	// Carrier describes how the request arrives or is sent, for observers. Nil means a stream.
	Carrier Carrier
	// Valid is a result that the transport or handler knows to be a valid JSON object. The same bytes,
	// returned as an mcp.RawResult, are sent without another scan.
	Valid json.RawMessage
}

// An Envelope is the metadata of a request: the revision, the client and its capabilities.
type Envelope = wire.Envelope

// A Carrier is the part of a transport that knows how a request arrives or is sent.
type Carrier interface{ Via() Via }

// A Via describes how a request has arrived at a server, or how a client sends it.
type Via struct {
	Sent            bool   // by this client; otherwise the request was received
	Network         string // "tcp" or "unix" for HTTP; "pipe" for streams, in memory, and other transports
	Protocol        string // "http", or empty
	ProtocolVersion string // of HTTP, such as "1.1"; empty while it is unknown
	Peer            string // the address of a client, or the host of a server with its port if the URL contains a port
	Session         string // a hash of the session's id; empty since 2026-07-28, on streams, and in clients
}
