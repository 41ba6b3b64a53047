package events

import (
	"encoding/base64"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxCursor limits a cursor of a caller in bytes. Cursors of real servers have at most a few hundred.
const maxCursor = 8 << 10

// A Cursor is a position in the events of a server as a caller holds it. It names the server, so that no server
// receives the cursor of another server.
type Cursor struct {
	Server string `json:"s"`
	// Position is the cursor of the server; nil if the server has no cursors.
	Position *string `json:"c,omitzero"`
	// Lease and Index are the position in the events that the host keeps; Lease is empty without kept events.
	Lease string `json:"l,omitzero"`
	Index uint64 `json:"n,omitzero"`
}

// Text returns the cursor for the caller: nil if it contains no position, or if the position of the server is so
// long that [ParseCursor] would refuse the cursor.
func (c *Cursor) Text() *string {
	if c.Position == nil && c.Lease == "" {
		return nil
	}
	raw, err := jsonv2.Marshal(c)
	if err != nil { // a position that is not UTF-8
		return nil
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	if len(text) > maxCursor {
		return nil
	}
	return &text
}

// ParseCursor reads the cursor of a caller for a server; text may be nil.
func ParseCursor(text *string, server string) (c Cursor, err error) {
	invalid := mcp.Errorf(mcp.CodeInvalidParams, "invalid params.cursor: must be a cursor of this event")
	if text == nil {
		return Cursor{Server: server}, nil
	}
	if len(*text) > maxCursor {
		return c, invalid
	}
	raw, err := base64.RawURLEncoding.DecodeString(*text)
	if err != nil || jsonv2.Unmarshal(raw, &c) != nil || c.Server != server {
		return c, invalid
	}
	return c, nil
}
