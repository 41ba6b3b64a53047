package inbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An Approval is a request of GET /pending.
type Approval struct {
	ID         string          `json:"id"`
	Created    time.Time       `json:"created"`
	Expires    time.Time       `json:"expires"`
	Principal  string          `json:"principal"`
	Client     string          `json:"client"`
	Server     string          `json:"server"`
	Method     string          `json:"method"`
	Target     string          `json:"target"`
	Arguments  json.RawMessage `json:"arguments"`
	Meta       json.RawMessage `json:"meta"`
	Definition json.RawMessage `json:"definition"`
	Rule       string          `json:"rule"`
	Reason     string          `json:"reason"`
	Answers    []string        `json:"answers"`

	Pin     *pin      `json:"-"` // nil if the definition is not compared with an approved definition
	Confirm bool      `json:"-"` // the page explains the answer "always", and asks for confirmation
	Role    page.Role `json:"-"` // of the person who sees it
}

// A pin is an entry of GET /pins.
type pin struct {
	Kind, Status string
	Approved     []struct {
		Digest string
		Time   time.Time
	}
}

// Digest returns the beginning of the digest of the approved definition, or "".
func (p *pin) Digest() string {
	if len(p.Approved) == 0 {
		return ""
	}
	const most = 12
	return p.Approved[0].Digest[:min(len(p.Approved[0].Digest), most)]
}

// Element returns the id of the element of the request.
func (a *Approval) Element() string { return "approval-" + page.ElementID(a.ID) }

// LeftElement returns the id of the element with the time left.
func (a *Approval) LeftElement() string { return "left-" + page.ElementID(a.ID) }

// version returns a text that changes with the card.
func (a *Approval) version() string { return fmt.Sprint(a.ID, a.Role, a.Confirm, a.Pin != nil) }

// Who returns the caller that asks, in words.
func (a *Approval) Who() string { return cmp.Or(a.Principal, "the local user") }

// Summary returns the request in a few words.
func (a *Approval) Summary() string {
	return fmt.Sprintf("Approval of %s %s for %s", a.Server, a.Target, a.Who())
}

// Kind returns the kind of the definition that the request uses, as pins name it.
func (a *Approval) Kind() string {
	switch a.Method {
	case "prompts/get":
		return "prompt"
	case "resources/read":
		return "resource"
	}
	return "tool"
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

// A Claim is an unverified statement of a server about its tool.
type Claim struct {
	Text, Kind string // Kind is the class of a badge
}

// Claims returns the server's statements about the effect of the tool. Spec: server/tools,
// annotations.
func (a *Approval) Claims() (all []Claim) {
	if a.Kind() != "tool" {
		return nil
	}
	var d struct{ Annotations mcp.ToolAnnotations }
	if json.Unmarshal(a.Definition, &d) != nil {
		return []Claim{{"nothing that can be read", "warn"}}
	}
	n := &d.Annotations
	is := func(b *bool) bool { return b != nil && *b }
	switch {
	case is(n.ReadOnly):
		all = append(all, Claim{"only reads", "ok"})
	case is(n.Destructive):
		all = append(all, Claim{"may destroy", "bad"})
	case n.Destructive != nil:
		all = append(all, Claim{"changes, destroys nothing", "warn"})
	default:
		all = append(all, Claim{"nothing about destroying: it may", "warn"})
	}
	if is(n.Idempotent) && !is(n.ReadOnly) {
		all = append(all, Claim{"the same again has no further effect", "idle"})
	}
	if is(n.OpenWorld) {
		all = append(all, Claim{"reaches other systems", "idle"})
	}
	return all
}

// Title returns the title and the description of the definition, which the server wrote.
func (a *Approval) Title() string {
	var d struct{ Title, Description string }
	_ = json.Unmarshal(a.Definition, &d) // an invalid definition has no texts
	const most = 400
	text := strings.TrimSpace(strings.TrimSpace(d.Title) + "\n" + strings.TrimSpace(d.Description))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

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
	Role      page.Role `json:"-"`
}
