package logs

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

// maxShown bounds the entries of a page, because a person would rather filter than read more
// entries.
const maxShown = 300

// New returns the screen with the entries of a book.
func New(site *page.Site, book *Book) *page.Screen {
	book.Notify(site.Changed)
	// The lines of all servers are more than the key of a viewer grants.
	return &page.Screen{Routes: []*page.Route{
		{Path: "/logs", Role: page.RoleOperator, Title: "Logs", Key: "l", Order: 50, View: book.view},
	}}
}

// A logsPage is the data of logsBody.
type logsPage struct {
	filter
	Servers, Sources, Levels []string
	Rows                     []Row
	More                     int // matching entries that are not shown
	Follow, Wrap             bool
	Toggle                   map[string]string // URLs that switch follow and wrap
}

// A Row is an entry of a page: the data of linePart.
type Row struct{ Entry }

// Element returns the id of the element of the row.
func (r *Row) Element() string { return "line-" + strconv.FormatUint(r.Number, 10) }

// Kind returns the class of the level.
func (r *Row) Kind() string {
	switch r.Level {
	case "error":
		return "bad"
	case "warning":
		return "warn"
	}
	return "idle"
}

func (r *Book) view(req *page.Request) (*page.View, error) {
	q := req.URL.Query()
	p := &logsPage{
		filter: filter{Server: q.Get("server"), Source: q.Get("source"), Level: q.Get("level"), Text: q.Get("q"),
			opens: req.Opens},
		Sources: []string{Stderr, Stdout, Server, Patchbay}, Levels: levels,
		Follow: q.Get("follow") != "off", Wrap: q.Get("wrap") != "off", Toggle: map[string]string{}}
	if p.Level != "" && !slices.Contains(levels, p.Level) {
		p.Level = "" // of a link that somebody typed
	}
	all, err := servers.List(req)
	if err != nil {
		return nil, err
	}
	for i := range all {
		p.Servers = append(p.Servers, all[i].Name)
	}
	for name, is := range map[string]bool{"follow": p.Follow, "wrap": p.Wrap} {
		other := req.URL.Query()
		if other.Del(name); is {
			other.Set(name, "off")
		}
		p.Toggle[name] = "/logs?" + other.Encode()
	}
	entries, matches := r.find(&p.filter, maxShown)
	p.More = matches - len(entries)
	for _, e := range entries {
		p.Rows = append(p.Rows, Row{e})
	}
	v := &page.View{Body: logsBody(p)}
	if !p.Follow {
		return v, nil
	}
	v.Fragments = []page.Fragment{{ID: "logs-count", Body: countPart(p)}}
	for i := range p.Rows {
		row := &p.Rows[i]
		v.Fragments = append(v.Fragments, page.Fragment{ID: row.Element(), Body: linePart(row), In: "lines",
			Place: page.Append, Version: fmt.Sprint(row.Number)})
	}
	return v, nil
}
