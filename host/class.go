package host

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// class returns the class of the instance that serves a request: the capabilities of its client, as
// far as servers of the session era need to know them when they connect.
func (u *Upstream) class(*mcp.Request) string { return "" }

// capabilities returns the capabilities that the server receives, nil for those of the client.
func (u *Upstream) capabilities(*mcp.Request) json.RawMessage { return nil }
