package inbox

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
)

// An Approval is a request of GET /pending.
type Approval struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Rule    string    `json:"rule"`
	Reason  string    `json:"reason"`
	Answers []string  `json:"answers"`
	question.Stake

	Confirm bool      `json:"-"` // the page explains the answer "always", and asks for confirmation
	Role    page.Role `json:"-"` // see roleFor
}

// Element returns the id of the element of the request.
func (a *Approval) Element() string { return "approval-" + page.ElementID(a.ID) }

// LeftElement returns the id of the element with the time left.
func (a *Approval) LeftElement() string { return "left-" + page.ElementID(a.ID) }

// version returns a text that changes with the card.
func (a *Approval) version() string { return fmt.Sprint(a.ID, a.Role, a.Confirm, a.Pin != nil) }

// Summary returns the request in a few words.
func (a *Approval) Summary() string {
	return fmt.Sprintf("Approval of %s %s for %s", a.Server, a.Target, a.Who())
}

// Left returns the time until the request expires, in minutes and seconds.
func (a *Approval) Left() string {
	left := max(time.Until(a.Expires), 0).Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(left.Minutes()), int(left.Seconds())%60)
}

// Can reports whether the request accepts an answer.
func (a *Approval) Can(answer string) bool { return slices.Contains(a.Answers, answer) }

// Decides reports whether the person may decide.
func (a *Approval) Decides() bool { return a.Role.Grants(page.RoleOperator) }

// words are the words for the answers of a person.
var words = map[string]string{"once": "Approved once", "session": "Approved for the session",
	"always": "Approved always", "deny": "Denied", "": "Expired or withdrawn"}

func wordOf(answer string) string { return cmp.Or(words[answer], answer) }

// A Grant is an approval for further requests, of GET /grants.
type Grant struct {
	ID        string    `json:"id"`
	Created   time.Time `json:"created"`
	Principal string    `json:"principal"`
	Server    string    `json:"server"`
	Target    string    `json:"target"`
	Rule      string    `json:"rule"`
	Scope     string    `json:"scope"`
	Approver  string    `json:"approver"`
	Role      page.Role `json:"-"` // see roleFor
}

// roleFor returns the role of a person for an item of a server: the role of a viewer if the person may not use
// the server.
func roleFor(r *page.Request, server string) page.Role {
	if r.Opens(server) {
		return r.Role
	}
	return page.RoleViewer
}
