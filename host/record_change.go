package host

import (
	"encoding/json"
	"strconv"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// recordConfig records that the host uses a configuration, and which epoch of the policy.
func (h *Host) recordConfig(f *config.File, action string) {
	policy := "none"
	if h.authorize.Policy() != nil {
		policy = strconv.FormatUint(h.authorize.Epoch(), 16)
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
	_ = h.record(&event.Record{Event: kind, Action: policy.Action{Caller: c, Server: server}, Detail: text})
}
