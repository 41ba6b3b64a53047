package round

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// ErrInvalidCursor is the only answer to a cursor that this host did not issue to the caller.
var ErrInvalidCursor = mcp.Errorf(mcp.CodeInvalidParams, "invalid params.cursor: unknown or of another list")

// A Cursor is a position in the lists of several servers, which are read in turn.
type Cursor struct {
	Server string `json:"s"`
	Cursor string `json:"c,omitzero"` // of the server; empty for its first page
	Page   int    `json:"p,omitzero"` // how many pages of the server come before
}

// maxPagesInTurn limits the pages of a server in a list of several servers: a server that never
// sends its last page must not hide the items of later servers from clients, which read 1,000 pages
// or so.
const maxPagesInTurn = 200

// Cursors seals the positions in a list of a caller.
type Cursors struct {
	Ring  *seal.KeyRing
	Bound []string // identifies the caller and the list
}

// After returns the cursor after a page of the first server; it is empty after the last page.
func (l *Cursors) After(servers []string, at Cursor, page []byte) string {
	cursor := jsonscan.GetString(page, "nextCursor")
	switch {
	case cursor != "" && at.Page+1 < maxPagesInTurn:
		return l.seal(Cursor{servers[0], cursor, at.Page + 1})
	case len(servers) > 1:
		return l.seal(Cursor{Server: servers[1]})
	}
	return ""
}

func (l *Cursors) seal(c Cursor) string {
	plain, err := json.Marshal(c)
	if err != nil {
		return "" // strings always encode
	}
	return l.Ring.SealText(plain, l.Bound...)
}

// Open returns the position that the cursor of a request contains, the zero value without a cursor.
func (l *Cursors) Open(req *mcp.Request) (c Cursor, err error) {
	raw, ok := req.Param("cursor")
	if !ok {
		return c, nil
	}
	text, err := jsonscan.Unquote(raw)
	if err != nil {
		return c, ErrInvalidCursor
	}
	plain, _, err := l.Ring.OpenText(text, l.Bound...)
	if err != nil || json.Unmarshal(plain, &c) != nil || c.Server == "" {
		return c, ErrInvalidCursor
	}
	return c, nil
}
