package main

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// schema is the schema of a tool of this project's server.
const schema = `{"type":"object",` +
	`"properties":{"message":{"type":"string","description":"the text to return"}},"required":["message"],` +
	`"additionalProperties":false}`

// tool returns a tool with the members that this project's server sends, so that both lists have the same
// length.
func tool(name, description, schema string) string {
	return `{"name":"` + name + `","description":"` + description + `","inputSchema":` + schema + `}`
}

// list returns the tools of a list.
func list(tools ...string) string { return `"tools":[` + strings.Join(tools, ",") + `]` }

// A lister responds to every request with a prepared list.
type lister struct {
	*answers
	list []byte // bytes after the id
}

func newLister(opts rig.Options) *lister {
	all := make([]string, opts.Tools)
	for i := range all {
		description, schema := echo.ToolDescription, schema
		if opts.Wide {
			description, schema = echo.WideTool(i)
		}
		all[i] = tool(echo.ListedTool(i), description, schema)
	}
	l := &lister{answers: answersOf(opts.Era)}
	if opts.Era == echo.Modern {
		l.list = []byte(`,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",` + list(all...) +
			modernMeta)
	} else {
		l.list = []byte(`,"result":{` + list(all...) + `}}`)
	}
	return l
}

// serve writes the prepared list with its Content-Length.
func (l *lister) serve(w http.ResponseWriter, r *http.Request) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, ok := b.read(w, r)
	if !ok || !handleHandshake(w, body) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if string(method(body)) != "tools/list" {
		b.out = l.append(b.out[:0], body)
		w.Write(b.out)
		return
	}
	b.out = append(append(b.out[:0], opening...), id(body)...)
	w.Header().Set("Content-Length", strconv.Itoa(len(b.out)+len(l.list)))
	w.Write(b.out)
	w.Write(l.list)
}
