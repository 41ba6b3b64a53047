package host

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// maxDriftNames bounds the names of each kind of change in one record. A hostile server has any number.
const maxDriftNames = 50

// A listDrift is the difference between two lists of a server.
type listDrift struct {
	List    string   `json:"list"`
	Added   []string `json:"added,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
	More    int      `json:"more,omitzero"` // names that were left out
}

func (d *listDrift) add(names *[]string, name string) {
	if len(*names) >= maxDriftNames {
		d.More++
		return
	}
	*names = append(*names, name)
}

// recordDrift records that a list differs from the one before.
func (p *pool) recordDrift(kind catalogue.Kind, old, now *catalogue.List) {
	if p.up.host.opts.Recorder == nil || old == nil || old.Equal(now) {
		return
	}
	d := &listDrift{List: kind.Member()}
	before := map[string]json.RawMessage{}
	for name, raw := range old.All() {
		before[name] = raw
	}
	for name, raw := range now.All() {
		switch was, ok := before[name]; {
		case !ok:
			d.add(&d.Added, name)
		case !bytes.Equal(was, raw):
			d.add(&d.Changed, name)
		}
		delete(before, name)
	}
	for name := range old.All() {
		if _, ok := before[name]; ok {
			d.add(&d.Removed, name)
		}
	}
	p.up.host.recordChange(event.Drift, p.caller, p.up.name, d)
}

// recordLogin records that a server requires a login.
func (u *Upstream) recordLogin(e *Event, c *policy.Caller) {
	if e.State == StateAuth {
		u.host.recordChange(event.Login, c, u.name, map[string]string{"outcome": "required"})
	}
}

// recordAdmin records an action of the operator on a server.
func (u *Upstream) recordAdmin(action string) {
	u.host.recordChange(event.Admin, nil, u.name, map[string]string{"action": action})
}

// recordConfig records that the host uses a configuration, and which epoch of the policy.
func (h *Host) recordConfig(f *config.File, action string) {
	policy := "none"
	if h.currentPolicy() != nil {
		policy = strconv.FormatUint(h.epoch(), 16)
	}
	h.recordChange(event.Config, nil, "", map[string]any{"action": action, "path": f.Path, "servers": f.Names(),
		"policy": policy})
}

// recordChange records an event that no request causes.
func (h *Host) recordChange(kind event.Kind, c *policy.Caller, server string, detail any) {
	if h.opts.Recorder == nil {
		return
	}
	text, err := json.Marshal(detail)
	if err != nil {
		return // of strings only
	}
	// Record reports failures.
	_ = h.Record(&event.Record{Event: kind, Action: policy.Action{Caller: c, Server: server}, Detail: text})
}
