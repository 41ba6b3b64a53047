// Package limits is the screen of the web console with the limits of servers and callers, and the requests
// that the limits refused.
package limits

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// maxUses is the number of callers whose use of budgets and rates a page shows.
const maxUses = 100

// limitsEvery is how often the screen is rendered: no event reports that a request begins.
const limitsEvery = 2 * time.Second

// New returns the screen.
func New() *page.Screen {
	return &page.Screen{Routes: []*page.Route{
		{Path: "/limits", Role: page.RoleViewer, Title: "Limits", Key: "w", Order: 60, View: view},
	}}
}

// A limitsPage is the data of limitsBody: the responses of GET /servers, GET /callers and GET
// /limits.
type limitsPage struct {
	Servers []server `json:"servers"`
	Callers []caller `json:"callers"`
	Budgets budgets  `json:"-"`
}

// budgets contains the limits of callers in force, and the part that each caller used.
type budgets struct {
	PerCaller   string    `json:"perCaller"`
	PerTool     string    `json:"perTool"`
	CallsPerDay int64     `json:"callsPerDay"` // 0 for no limit
	BytesPerDay int64     `json:"bytesPerDay"` // 0 for no limit
	Resets      time.Time `json:"resets"`
	Processes   int       `json:"processes"` // gateways that share the limits; 0 for none
	InShares    bool      `json:"inShares"`  // the store of limits does not answer
	Callers     []use     `json:"callers"`
	NextCursor  int       `json:"nextCursor"`
	Link        string    `json:"-"` // the URL of the next callers, or ""
}

// A use contains the parts of the limits that a caller used.
type use struct{ status.Caller }

// Who returns the caller in words.
func (u *use) Who() string { return cmp.Or(u.Subject, "local user") }

// Size returns a number of bytes in words.
func (*budgets) Size(n int64) string { return term.FormatBytes(int(n)) }

// calls and bytes return the budgets of a day in words.
func (b *budgets) calls() string {
	if b.CallsPerDay == 0 {
		return "any number of calls"
	}
	return strconv.FormatInt(b.CallsPerDay, 10) + " calls"
}

func (b *budgets) bytes() string {
	if b.BytesPerDay == 0 {
		return "any number of bytes"
	}
	return b.Size(b.BytesPerDay)
}

// Percent returns the used part of a limit in percent.
func (b *budgets) Percent(used, limit int64) int {
	return int(min(100*float64(used)/float64(max(limit, 1)), 100))
}

// A server is a row of the servers.
type server struct {
	Name   string `json:"name"`
	Limits struct {
		Running      int               `json:"running"`
		Queued       int               `json:"queued"`
		Concurrency  int               `json:"concurrency"`
		Queue        int               `json:"queue"`
		Breaker      string            `json:"breaker"`
		RetryAfterMs int64             `json:"retryAfterMs"`
		Refused      map[string]uint64 `json:"refused"`
	} `json:"limits"`
}

// A caller is a row of the callers.
type caller struct {
	Subject  string    `json:"subject"`
	Issuer   string    `json:"issuer"`
	Profile  string    `json:"profile"`
	Client   string    `json:"client"`
	Requests uint64    `json:"requests"`
	Refused  uint64    `json:"refused"`
	Last     time.Time `json:"last"`
}

// Kind returns the class of the badge of the breaker.
func (s *server) Kind() string {
	switch s.Limits.Breaker {
	case "open":
		return "bad"
	case "half-open":
		return "warn"
	case "closed":
		return "ok"
	}
	return "idle"
}

// BreakerText returns the state of the breaker in words.
func (s *server) BreakerText() string {
	text := cmp.Or(s.Limits.Breaker, "not started")
	if s.Limits.RetryAfterMs > 0 {
		text += ", next try in " + (time.Duration(s.Limits.RetryAfterMs) * time.Millisecond).Round(time.Second).String()
	}
	return text
}

// Total returns the number of refused requests.
func (s *server) Total() (n uint64) {
	for _, count := range s.Limits.Refused {
		n += count
	}
	return n
}

// Reasons returns the refused requests by setting in words.
func (s *server) Reasons() string {
	var all []string
	for _, setting := range slices.Sorted(maps.Keys(s.Limits.Refused)) {
		all = append(all, fmt.Sprintf("%s %d", setting, s.Limits.Refused[setting]))
	}
	return strings.Join(all, ", ")
}

func view(r *page.Request) (*page.View, error) {
	p := &limitsPage{}
	if err := r.Get("/servers", p); err != nil {
		return nil, err
	}
	if err := r.Get("/callers", p); err != nil {
		return nil, err
	}
	b, after := &p.Budgets, cmp.Or(r.URL.Query().Get("after"), "0")
	query := url.Values{"cursor": {after}, "limit": {strconv.Itoa(maxUses)}}
	if err := r.Get("/limits?"+query.Encode(), b); err != nil {
		return nil, err
	}
	if b.NextCursor > 0 {
		b.Link = "/limits?after=" + strconv.Itoa(b.NextCursor)
	}
	return &page.View{Body: limitsBody(p), Every: limitsEvery, Fragments: []page.Fragment{
		{ID: "limited-servers", Body: serversPart(p)}, {ID: "limited-budgets", Body: budgetsPart(b)},
		{ID: "limited-callers", Body: callersPart(p)}}}, nil
}
