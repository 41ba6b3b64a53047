package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

func pinRoutes() []*adminRoute {
	approve := postRoute("/pins", "approve", "Approve quarantined definitions, each by its digest",
		(*adminRequest).approvePins)
	return []*adminRoute{
		getRoute("/pins", "Approved and quarantined definitions of servers", (*adminRequest).pins), approve}
}

// A pinQuery selects definitions.
type pinQuery struct {
	Server string `json:"server,omitzero" jsonschema:"of this server only"`
	Status string `json:"status,omitzero" jsonschema:"enum=approved|new|changed|quarantined|removed"`
	Name   string `json:"name,omitzero" jsonschema:"with this name only"`
	Diff   bool   `json:"diff,omitzero" jsonschema:"with the difference of quarantined definitions to approved ones"`
	// Definitions adds texts of at most 64 KiB each to both forms of an entry.
	Definitions bool `json:"definitions,omitzero" jsonschema:"with all pending forms and the last approved form"`
	Cursor      int  `json:"cursor,omitzero" jsonschema:"nextCursor of the previous page,minimum=0"`
	Limit       int  `json:"limit,omitzero" jsonschema:"of a page,minimum=1,maximum=1000"`
}

// A pinPage is a page of definitions.
type pinPage struct {
	Pins       []pinEntry `json:"pins"`
	Matched    int        `json:"matched" jsonschema:"number of definitions on all pages"`
	NextCursor int        `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

// A pinEntry is the recorded state of one definition.
type pinEntry struct {
	Server   string    `json:"server"`
	Identity string    `json:"identity" jsonschema:"of the server, independent of its name"`
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	Status   string    `json:"status" jsonschema:"approved, new or changed"`
	Approved []pinForm `json:"approved" jsonschema:"forms that are used, the newest first"`
	Pending  []pinForm `json:"pending" jsonschema:"forms that are quarantined, the newest first"`
	Removed  bool      `json:"removed,omitzero" jsonschema:"approved, and no longer listed by the server"`
	Diff     []string  `json:"diff,omitzero"`
}

// A pinForm is one form of a definition.
type pinForm struct {
	Digest     string          `json:"digest"`
	Time       time.Time       `json:"time"`
	Definition json.RawMessage `json:"definition,omitzero" jsonschema:"as the server sent it, with secrets masked"`
}

// pinForms returns forms, the first n with their definitions.
func pinForms(all []pin.Definition, n int) []pinForm {
	forms := []pinForm{}
	for i, d := range all {
		form := pinForm{Digest: d.Digest, Time: d.Time.UTC()}
		if i < n {
			form.Definition = d.JSON
		}
		forms = append(forms, form)
	}
	return forms
}

func (r *adminRequest) pins(q *pinQuery) (*pinPage, error) {
	all, err := pin.List(r.Context(), r.host().Operator().State())
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p *pin.Pin) bool {
		return q.Server != "" && p.Server != q.Server || q.Name != "" && p.Name != q.Name || !q.hasStatus(p)
	})
	res := &pinPage{Pins: []pinEntry{}, Matched: len(all)}
	all, res.NextCursor = page(all, q.Cursor, limitOr(q.Limit))
	for _, p := range all {
		approved, pending := 0, 0 // forms with their definitions
		if q.Definitions {
			approved, pending = 1, len(p.Pending)
		}
		e := pinEntry{Server: p.Server, Identity: p.Identity, Kind: string(p.Kind), Name: p.Name, Status: p.Status(),
			Approved: pinForms(p.Approved, approved), Pending: pinForms(p.Pending, pending), Removed: p.Removed}
		if q.Diff && len(p.Pending) > 0 {
			e.Diff = p.Diff()
		}
		res.Pins = append(res.Pins, e)
	}
	return res, nil
}

// hasStatus reports whether a definition has the status of the query.
func (q *pinQuery) hasStatus(p *pin.Pin) bool {
	switch q.Status {
	case "":
		return true
	case "quarantined":
		return len(p.Pending) > 0
	case "removed":
		return p.Removed
	}
	return p.Status() == q.Status
}

// A pinApproval lists the definitions to approve.
type pinApproval struct {
	Pins []pinChoice `json:"pins" jsonschema:"minItems=1,maxItems=1000"`
}

// A pinChoice identifies one form of a definition, as the list returns it.
type pinChoice struct {
	Identity string `json:"identity"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Digest   string `json:"digest" jsonschema:"of a pending form: newer ones are not approved"`
}

// A pinsApproved is the response to an approval.
type pinsApproved struct {
	Approved int `json:"approved" jsonschema:"number of forms"`
}

func (r *adminRequest) approvePins(body *pinApproval) (*pinsApproved, error) {
	all, err := pin.List(r.Context(), r.host().Operator().State())
	if err != nil {
		return nil, err
	}
	byName := map[pinChoice]*pin.Pin{}
	for _, p := range all {
		byName[pinChoice{p.Identity, string(p.Kind), p.Name, ""}] = p
	}
	chosen := map[*pin.Pin]*pin.Pin{}
	for _, c := range body.Pins {
		p := byName[pinChoice{c.Identity, c.Kind, c.Name, ""}]
		if p == nil {
			return nil, problemf(http.StatusNotFound, "unknown_pin",
				"unknown %.40s %.100q of the server with identity %.100q", c.Kind, c.Name, c.Identity)
		}
		i := slices.IndexFunc(p.Pending, func(d pin.Definition) bool { return d.Digest == c.Digest })
		if i < 0 {
			return nil, problemf(http.StatusConflict, "pin_changed",
				"the form %.80q of %s %.100q does not wait for approval", c.Digest, c.Kind, c.Name)
		}
		if chosen[p] == nil {
			only := *p
			only.Pending = nil
			chosen[p] = &only
		}
		chosen[p].Pending = append(chosen[p].Pending, p.Pending[i])
	}
	pins := make([]*pin.Pin, 0, len(chosen))
	for _, p := range chosen {
		slices.SortFunc(p.Pending, func(a, b pin.Definition) int { return b.Time.Compare(a.Time) })
		pins = append(pins, p)
	}
	slices.SortFunc(pins, func(a, b *pin.Pin) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Name, b.Name))
	})
	if err := pin.Approve(r.Context(), r.host().Operator().State(), pins...); err != nil {
		return nil, err
	}
	for _, p := range pins {
		for _, d := range p.Pending {
			_ = r.host().Operator().Record(&event.Record{Event: event.Admin, Start: time.Now(),
				Action: policy.Action{Server: p.Server},
				Detail: mustMarshal(map[string]any{"action": "approve definition", "kind": p.Kind,
					"name": cut(p.Name, maxEventText), "digest": d.Digest})}) // the Recorder reports its failures
		}
	}
	return &pinsApproved{len(body.Pins)}, nil
}
