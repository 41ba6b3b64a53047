// Package pins is the screen of the web console with the definitions of servers that wait for
// approval, and their differences from the approved definitions.
package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	// maxWaiting limits the definitions of a page with their texts of up to 64 KiB.
	maxWaiting = 50
	// maxLines limits the lines of a page, which ends after the definition that exceeds it.
	maxLines = 50_000
	// maxListed limits the definitions of a page without texts.
	maxListed = 500
	// maxApproved limits the definitions that a request approves, as the admin API does.
	maxApproved = 1000
	// shownDigest is the length of a digest in a table, which is enough to tell digests apart.
	shownDigest = 12
)

// New returns the screen.
func New() *page.Screen {
	s := &screen{}
	return &page.Screen{Routes: []*page.Route{
		{Path: "/pins", Role: page.RoleViewer, AnyServer: true, Title: "Pins", Key: "p", Order: 40, View: s.view},
		{Path: "/pins/approve", Role: page.RoleOperator, Act: approve},
	}}
}

// screen contains the functions of the screen.
type screen struct{ changes changes }

// A pin is a definition of GET /pins.
type pin struct {
	Server   string `json:"server"`
	Identity string `json:"identity"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	Approved []form `json:"approved"`
	Pending  []form `json:"pending"`
	Removed  bool   `json:"removed"`
}

// A form is one form of a definition.
type form struct {
	Digest     string          `json:"digest"`
	Time       time.Time       `json:"time"`
	Definition json.RawMessage `json:"definition"`
}

// short returns the beginning of the digest.
func (f *form) short() string { return f.Digest[:min(len(f.Digest), shownDigest)] }

// A choice identifies a form for POST /pins:approve.
type choice struct {
	Identity string `json:"identity"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Digest   string `json:"digest"`
}

// A list is a response of GET /pins.
type list struct {
	Pins       []pin `json:"pins"`
	Matched    int   `json:"matched"`
	NextCursor int   `json:"nextCursor"`
}

// A pinsPage is the data of pinsBody.
type pinsPage struct {
	Status  string // quarantined, approved or removed
	Server  string // of which the definitions are shown; "" for all
	Tabs    []tab
	Groups  []group
	Listed  []pin  // without texts
	More    string // the URL of the next page, or ""
	Back    string // the URL of the page
	Notice  string // the result of an approval
	Newer   []string
	Matched int
}

// A tab selects a status.
type tab struct {
	Title, Link string
	Count       int
	Current     bool
}

// A group contains the waiting definitions of a server.
type group struct {
	Server, ID string
	Cards      []card
	Choices    []string // of the cards whose changes are short
	Short      int      // cards in Choices
	Role       page.Role
	Back       string
}

// subject returns the definitions that the button of the group approves, in words.
func (g *group) subject() string {
	if g.Short < len(g.Cards) {
		return "short changes"
	}
	return "shown"
}

// A card is the data of cardPart.
type card struct {
	ID, Server, Kind, Name, Status string
	Since                          time.Time // when the definition was last found to be different
	Forms                          []change
	Next                           string // the link of the definition after it
	Role                           page.Role
	Back                           string
}

var statuses = []struct{ status, title string }{
	{"quarantined", "Waiting"}, {"approved", "Approved"}, {"removed", "Removed"}}

func (s *screen) view(r *page.Request) (*page.View, error) {
	q := r.URL.Query()
	p := &pinsPage{Status: q.Get("status"), Server: q.Get("server"), Back: "/pins?" + r.URL.RawQuery}
	if !slices.ContainsFunc(statuses, func(s struct{ status, title string }) bool { return s.status == p.Status }) {
		p.Status = statuses[0].status
	}
	if n, err := strconv.Atoi(q.Get("approved")); err == nil && n > 0 {
		p.Notice = fmt.Sprintf("Approved %d definitions.", n)
		if n == 1 {
			p.Notice = "Approved 1 definition."
		}
		p.Newer = q["newer"]
	}
	for _, t := range statuses {
		var l list
		if err := r.Get(listPath(t.status, p.Server, 0, 1, false), &l); err != nil {
			return nil, err
		}
		link, err := page.Link("/pins", "status", t.status, "server", p.Server)
		if err != nil {
			return nil, err
		}
		p.Tabs = append(p.Tabs, tab{t.title, link, l.Matched, t.status == p.Status})
	}
	cursor, _ := strconv.Atoi(q.Get("cursor")) // another value shows the first page
	cursor = max(cursor, 0)
	waiting := p.Status == statuses[0].status
	most := maxListed
	if waiting {
		most = maxWaiting
	}
	var l list
	if err := r.Get(listPath(p.Status, p.Server, cursor, most, waiting), &l); err != nil {
		return nil, err
	}
	p.Matched = l.Matched
	if waiting {
		var shown int
		p.Groups, shown = s.groups(l.Pins, r.Role, p.Back)
		if shown < len(l.Pins) {
			l.Pins, l.NextCursor = l.Pins[:shown], cursor+shown
		}
	}
	if l.NextCursor > 0 {
		p.More, _ = page.Link("/pins", "status", p.Status, "server", p.Server, "cursor", strconv.Itoa(l.NextCursor))
	}
	if !waiting {
		p.Listed = l.Pins
		return &page.View{Body: pinsBody(p)}, nil
	}
	fragments := []page.Fragment{{ID: "waiting", Body: waitingPart(p), Version: version(p, l.Pins)}}
	return &page.View{Body: pinsBody(p), Fragments: fragments}, nil
}

// version returns a text that differs if the definitions that wait differ, without their texts: a form has
// its digest.
func version(p *pinsPage, all []pin) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d ", p.More, p.Matched)
	for i := range all {
		d := &all[i]
		fmt.Fprintf(h, "%q ", []string{d.Server, d.Identity, d.Kind, d.Name, d.Status})
		for _, f := range slices.Concat(d.Approved[:min(len(d.Approved), 1)], d.Pending) {
			fmt.Fprintf(h, "%q %d %t ", f.Digest, f.Time.UnixNano(), len(f.Definition) == 0)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// listPath returns a path of the admin API.
func listPath(status, server string, cursor, limit int, definitions bool) string {
	q := url.Values{"status": {status}, "limit": {strconv.Itoa(limit)}}
	if server != "" {
		q.Set("server", server)
	}
	if cursor > 0 {
		q.Set("cursor", strconv.Itoa(cursor))
	}
	if definitions {
		q.Set("definitions", "true")
	}
	return "/pins?" + q.Encode()
}

// groups returns the first definitions by server, and their number. Their order is by server.
func (s *screen) groups(all []pin, role page.Role, back string) (list []group, shown int) {
	lines := 0
	for i := range all {
		if lines > maxLines {
			return list, i
		}
		p := &all[i]
		c := card{ID: elementID(p), Server: p.Server, Kind: p.Kind,
			Name: p.Name, Status: p.Status, Role: role, Back: back}
		var old *form
		if len(p.Approved) > 0 {
			old = &p.Approved[0]
		}
		isLong := false
		for j := range p.Pending {
			made := s.changes.of(p, old, &p.Pending[j])
			made.Place = j + 1
			isLong = isLong || made.Long
			lines += made.Lines
			c.Forms = append(c.Forms, made)
			c.Since = p.Pending[0].Time
		}
		if i+1 < len(all) {
			c.Next = "#" + elementID(&all[i+1])
		}
		if i == 0 || all[i-1].Identity != p.Identity {
			list = append(list, group{Server: p.Server, ID: "server-" + page.ElementID(p.Identity), Role: role,
				Back: back})
		}
		g := &list[len(list)-1]
		g.Cards = append(g.Cards, c)
		if isLong {
			continue
		}
		g.Short++
		for _, f := range c.Forms {
			g.Choices = append(g.Choices, f.Choice)
		}
	}
	return list, len(all)
}

func elementID(p *pin) string { return "pin-" + page.ElementID(p.Identity+"/"+p.Kind+"/"+p.Name) }

// approve approves the forms that the page showed. A form that the server sent later stays
// quarantined.
func approve(r *page.Request) (*page.Outcome, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	var body struct {
		Pins []choice `json:"pins"`
	}
	for _, text := range r.PostForm["pin"] {
		var c choice
		if json.Unmarshal([]byte(text), &c) != nil || len(body.Pins) == maxApproved {
			return nil, &gateway.Problem{Status: http.StatusBadRequest, Code: "invalid_body",
				Detail: fmt.Sprintf("invalid definitions: must be at most %d, as the page contains them", maxApproved)}
		}
		body.Pins = append(body.Pins, c)
	}
	if len(body.Pins) == 0 {
		return nil, page.Problem(http.StatusBadRequest, "invalid_body", "missing definition: select a definition")
	}
	err := r.Post("/pins:approve", &body, nil)
	var p *gateway.Problem
	if errors.As(err, &p) && p.Code == "pin_changed" {
		p.Detail += ": the server changed it since the page was shown, or it is approved already; " +
			"nothing was approved, look at it again"
	}
	if err != nil {
		return nil, err
	}
	newer, err := stillWaiting(r, body.Pins)
	if err != nil {
		return nil, err
	}
	q := url.Values{"approved": {strconv.Itoa(len(body.Pins))}, "newer": newer}
	if back, err := url.Parse(r.PostFormValue("back")); err == nil && back.Query().Get("server") != "" {
		q.Set("server", back.Query().Get("server"))
	}
	return &page.Outcome{Location: "/pins?" + q.Encode()}, nil
}

// maxNewer limits the names that the URL of a page contains.
const maxNewer = 10

// stillWaiting returns the names of definitions that were approved and are quarantined again, with
// another form.
func stillWaiting(r *page.Request, approved []choice) (names []string, err error) {
	var l list
	if err := r.Get(listPath("quarantined", "", 0, maxApproved, false), &l); err != nil {
		return nil, err
	}
	for _, p := range l.Pins {
		if len(names) < maxNewer && slices.ContainsFunc(approved, func(c choice) bool {
			return c.Identity == p.Identity && c.Kind == p.Kind && c.Name == p.Name
		}) {
			names = append(names, strings.TrimSpace(p.Server+" "+p.Name))
		}
	}
	return names, nil
}
