// Package calls is the traffic of a console that is attached to a gateway: the calls that events of
// the gateway report, without their messages.
package calls

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

// maxCalls bounds the calls that are held. An event is at most about 2 KiB.
const maxCalls = 500

// New returns the screen.
func New() *page.Screen {
	c := &calls{}
	return &page.Screen{Heard: c.heard, Routes: []*page.Route{
		{Path: "/traffic", Role: page.RoleOperator, Title: "Traffic", Key: "t", Order: 30, View: c.view}}}
}

// calls holds the latest calls. It is safe for concurrent use.
type calls struct {
	mu    sync.Mutex // guards the fields below
	last  int        // number of the newest call
	calls []call     // the oldest first
}

// A call is an event of the type call, as far as it is shown.
type call struct {
	Time    time.Time `json:"time"`
	Server  string    `json:"server"`
	Method  string    `json:"method"`
	Target  string    `json:"target"`
	Caller  string    `json:"caller"`
	Outcome string    `json:"outcome"`
	Code    string    `json:"code"`
	Error   string    `json:"error"`
	Millis  float64   `json:"ms"`

	ID string `json:"-"` // of the element
}

// Kind returns the class of the outcome, which selects its colour and symbol.
func (c *call) Kind() string {
	if c.Outcome == "ok" {
		return "ok"
	}
	return "bad"
}

// Words returns the outcome with its code.
func (c *call) Words() string { return strings.TrimSpace(c.Outcome + " " + c.Code) }

// Took returns how long the call took.
func (c *call) Took() string {
	const digits = 3
	return strconv.FormatFloat(c.Millis, 'g', digits, 64) + " ms"
}

// heard adds a call.
func (c *calls) heard(e page.Event) {
	if e.Type != "call" {
		return
	}
	var one call
	if json.Unmarshal(e.Data, &one) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	one.ID = "call-" + strconv.Itoa(c.last)
	c.calls = append(c.calls[max(0, len(c.calls)+1-maxCalls):], one)
}

// A callsPage is the data of callsBody.
type callsPage struct {
	Query string
	Calls []call // the newest first
}

// view returns the calls that contain the words of the filter.
func (c *calls) view(r *page.Request) (*page.View, error) {
	p := &callsPage{Query: r.URL.Query().Get("q")}
	words := strings.Fields(strings.ToLower(p.Query))
	c.mu.Lock()
	held := slices.Clone(c.calls)
	c.mu.Unlock()
	v, opened := &page.View{Body: callsBody(p)}, servers.Opened(r)
	for i := range held {
		one := &held[i]
		text := strings.ToLower(one.Method + " " + one.Target + " " + one.Server + " " + one.Caller + " " + one.Words())
		if !opened(one.Server) ||
			slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			continue
		}
		p.Calls = append(p.Calls, *one)
		v.Fragments = append(v.Fragments, page.Fragment{ID: one.ID, Body: callPart(one), In: "calls",
			Place: page.Prepend, Version: one.ID})
	}
	slices.Reverse(p.Calls)
	return v, nil
}
