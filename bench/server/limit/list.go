package main

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// tools are the tools of a list, with what this project's server says of them,
// so that both write as many bytes.
func tools(names ...string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"name":"` + name + `","description":"` + echo.ToolDescription + `","inputSchema":{"type":"object",` +
			`"properties":{"message":{"type":"string","description":"the text to return"}},"required":["message"],"additionalProperties":false}}`)
	}
	return `"tools":[` + b.String() + `]`
}

// A lister answers every call with a list that it made in advance.
type lister struct {
	*answers
	list []byte // what follows the id
}

func newLister(opts rig.Options) *lister {
	names := make([]string, opts.Tools)
	for i := range names {
		names[i] = echo.ListedTool(i)
	}
	l := &lister{answers: answersOf(opts.Era)}
	if opts.Era == echo.Modern {
		l.list = []byte(`,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",` + tools(names...) + modernMeta)
	} else {
		l.list = []byte(`,"result":{` + tools(names...) + `}}`)
	}
	return l
}

// serve writes the list as it lies there, with its length.
func (l *lister) serve(w http.ResponseWriter, r *http.Request) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, ok := b.read(w, r)
	if !ok || !admit(w, body) {
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
