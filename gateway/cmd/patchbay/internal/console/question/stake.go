package question

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Stake contains everything that a person must know about a request before a decision.
type Stake struct {
	Principal  string          `json:"principal"` // who sends it; "" is the local user
	Client     string          `json:"client"`    // as the client calls itself
	Server     string          `json:"server"`
	Method     string          `json:"method"`
	Target     string          `json:"target"`
	Arguments  json.RawMessage `json:"arguments"` // that the server receives, without secrets
	Meta       json.RawMessage `json:"meta"`
	Definition json.RawMessage `json:"definition"` // as the server sent it

	Pin *Pin `json:"-"` // nil if the definition is not compared with an approved definition
	// Hidden is set for a person who may not read the arguments of other callers.
	Hidden bool `json:"-"`
}

// A Pin is an entry of GET /pins.
type Pin struct {
	Kind, Status string
	Approved     []struct{ Digest string }
}

// Digest returns the beginning of the digest of the approved definition, or "".
func (p *Pin) Digest() string {
	if len(p.Approved) == 0 {
		return ""
	}
	const most = 12
	return p.Approved[0].Digest[:min(len(p.Approved[0].Digest), most)]
}

// FindPin sets the pin of the definition. get sends a GET request to the admin API.
func (s *Stake) FindPin(get func(path string, v any) error) error {
	var list struct{ Pins []Pin }
	q := url.Values{"server": {s.Server}, "name": {s.Target}}
	if err := get("/pins?"+q.Encode(), &list); err != nil {
		return err
	}
	if at := slices.IndexFunc(list.Pins, func(p Pin) bool { return p.Kind == s.kind() }); at >= 0 {
		s.Pin = &list.Pins[at]
	}
	return nil
}

// Hide removes the arguments, for a person who may not read them.
func (s *Stake) Hide() { s.Arguments, s.Meta, s.Hidden = nil, nil, true }

// Who returns the caller, in words.
func (s *Stake) Who() string { return cmp.Or(s.Principal, "the local user") }

// kind returns the kind of the definition, as pins name it.
func (s *Stake) kind() string {
	switch s.Method {
	case "prompts/get":
		return "prompt"
	case "resources/read":
		return "resource"
	}
	return "tool"
}

// A Claim is an unverified statement of a server about its tool.
type Claim struct {
	Text, Kind string // Kind is the class of a badge
}

// Claims returns the server's claims about the effect of the tool. Spec: server/tools, annotations.
func (s *Stake) Claims() (all []Claim) {
	if s.kind() != "tool" {
		return nil
	}
	var d struct{ Annotations mcp.ToolAnnotations }
	if json.Unmarshal(s.Definition, &d) != nil {
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
func (s *Stake) Title() string {
	var d struct{ Title, Description string }
	_ = json.Unmarshal(s.Definition, &d) // an invalid definition has no texts
	const most = 400
	text := strings.TrimSpace(strings.TrimSpace(d.Title) + "\n" + strings.TrimSpace(d.Description))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
