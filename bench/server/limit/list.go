package main

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// tools returns the tools of a list with the members that this project's server
// sends, so that both lists have the same length.
func tools(names ...string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"name":"` + name + `","description":"` + echo.ToolDescription +
			`","inputSchema":{"type":"object",` +
			`"properties":{"message":{"type":"string","description":"the text to return"}},"required":["message"],` +
			`"additionalProperties":false}}`)
	}
	return `"tools":[` + b.String() + `]`
}

// A lister responds to every request with a prepared list.
type lister struct {
	*answers
	list []byte // bytes after the id
}

func newLister(opts rig.Options) *lister {
	names := make([]string, opts.Tools)
	for i := range names {
		names[i] = echo.ListedTool(i)
	}
	l := &lister{answers: answersOf(opts.Era)}
	if opts.Era == echo.Modern {
		l.list = []byte(`,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",` + tools(names...) +
			modernMeta)
	} else {
		l.list = []byte(`,"result":{` + tools(names...) + `}}`)
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
