package overview

import (
	"encoding/json"
	"net/http"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

// maxEntries limits the servers and tools of the palette, which a browser filters at each key.
const maxEntries = 5000

// An entry is a server or tool of the palette.
type entry struct {
	Kind   string `json:"kind"` // "server" or "tool"
	Name   string `json:"name"` // without hidden characters
	Server string `json:"server,omitzero"`
	URL    string `json:"url"`
}

// palette writes the servers, and the tools of connected servers, for palette.js.
func (o *overview) palette(w http.ResponseWriter, r *page.Request) error {
	rows, err := servers.List(r)
	if err != nil {
		return err
	}
	var list struct {
		Entries []entry `json:"entries"`
		Loading bool    `json:"loading"` // tools that are not listed yet
	}
	list.Entries = []entry{}
	add := func(e entry, words ...string) {
		if len(list.Entries) < maxEntries {
			e.URL, _ = page.Link("/explore", words...) // pairs
			list.Entries = append(list.Entries, e)
		}
	}
	for i := range rows {
		add(entry{Kind: "server", Name: page.Escape(rows[i].Name)}, "server", rows[i].Name)
	}
	for i := range rows {
		server := rows[i].Name
		t := o.toolsOf(&rows[i], r.Principal)
		if t == nil {
			continue
		}
		list.Loading = list.Loading || !t.Loaded
		for _, name := range t.Names {
			add(entry{Kind: "tool", Name: page.Escape(name), Server: page.Escape(server)},
				"server", server, "tool", name)
		}
	}
	text, err := json.Marshal(&list)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error means that the browser left
	return nil
}
