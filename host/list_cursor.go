package host

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A listCursor is a position in the lists of several servers, which are read one after the other.
type listCursor struct {
	Server string `json:"s"`
	Cursor string `json:"c,omitzero"` // of the server; empty for its first page
	Page   int    `json:"p,omitzero"` // how many pages of the server come before
}

// maxPagesInTurn limits the pages of one server in a list of several: a server that never sends its last page
// must not hide the items of the servers after it from clients, which read 1,000 pages or so.
const maxPagesInTurn = 200

// listCursors seals the positions in a list of one caller.
type listCursors struct {
	ring  *seal.KeyRing
	bound []string // identifies the caller and the list
}

func (v *View) listCursors(req *mcp.Request) listCursors {
	return listCursors{v.host.states.ring,
		[]string{"cursor", v.caller.Key(), v.caller.Profile, v.caller.Server, req.Method}}
}

// after returns the cursor after a page of the first of the servers that have a list; empty after the last
// page.
func (l *listCursors) after(servers []string, at listCursor, page []byte) string {
	cursor := jsonscan.GetString(page, "nextCursor")
	switch {
	case cursor != "" && at.Page+1 < maxPagesInTurn:
		return l.seal(listCursor{servers[0], cursor, at.Page + 1})
	case len(servers) > 1:
		return l.seal(listCursor{Server: servers[1]})
	}
	return ""
}

func (l *listCursors) seal(c listCursor) string {
	plain, err := json.Marshal(c)
	if err != nil {
		return "" // strings always encode
	}
	return l.ring.SealText(plain, l.bound...)
}

// open returns the position that the cursor of a request contains, the zero value without a cursor.
func (l *listCursors) open(req *mcp.Request) (c listCursor, err error) {
	raw, ok := req.Param("cursor")
	if !ok {
		return c, nil
	}
	text, err := jsonscan.Unquote(raw)
	if err != nil {
		return c, errInvalidCursor
	}
	plain, _, err := l.ring.OpenText(text, l.bound...)
	if err != nil || json.Unmarshal(plain, &c) != nil || c.Server == "" {
		return c, errInvalidCursor
	}
	return c, nil
}
