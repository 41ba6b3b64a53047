package host_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Records and grants name who has approved or refused a request, for each channel, also when a grant approves it.
//
// Requirement: HOST-21
func TestApproverIsRecorded(t *testing.T) {
	long := strings.Repeat("é", 200) // more than is kept
	for name, test := range map[string]struct {
		channel policy.Channel
		answer  approval.Answer
		caller  *policy.Caller
		by      string // of the operator
		want    string
	}{
		"console":         {policy.ChannelConsole, approval.Always, &policy.Caller{}, "olga", "olga"},
		"console refuses": {policy.ChannelConsole, approval.Deny, &policy.Caller{}, "olga", "olga"},
		"long name":       {policy.ChannelConsole, approval.Always, &policy.Caller{}, long, long[:252] + "…"},
		"client":          {policy.ChannelClient, approval.Always, &policy.Caller{Principal: principal("bob")}, "", "bob (test)"},
		"client refuses":  {policy.ChannelClient, approval.Deny, &policy.Caller{Principal: principal("bob")}, "", "bob (test)"},
		"local client":    {policy.ChannelClient, approval.Always, &policy.Caller{}, "", "local"},
		"webhook":         {policy.ChannelWebhook, approval.Always, &policy.Caller{}, "", "hook.example.com"},
		"webhook refuses": {policy.ChannelWebhook, approval.Deny, &policy.Caller{}, "", "hook.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var records []event.Record
				h, _ := openBank(t, "auto", host.Options{Policy: askPolicy, Channels: []policy.Channel{test.channel},
					WebhookName: "hook.example.com",
					Webhook:     func(context.Context, *approval.Pending) (approval.Answer, error) { return test.answer, nil },
					Recorder: recorderFunc(func(r *event.Record) {
						mu.Lock()
						defer mu.Unlock()
						records = append(records, *r)
					})})
				c := mcptest.Dial(t, h.For(test.caller), inMemory, deciding(string(test.answer), nil))
				call := func() {
					if _, err := c.CallTool(t.Context(), "bank__pay", map[string]any{}); err != nil {
						t.Error(err)
					}
				}
				done := make(chan bool)
				go func() { call(); close(done) }()
				if test.channel == policy.ChannelConsole {
					if err := h.Approvals().Decide(t.Context(), pending(t, h.Approvals()).ID, test.answer, test.by); err != nil {
						t.Error(err)
					}
				}
				<-done
				end := event.Refused
				if test.answer != approval.Deny {
					end = event.End
					call() // by the grant
					grants, err := h.Approvals().Grants(t.Context())
					if err != nil || len(grants) != 1 || grants[0].Approver != test.want {
						t.Errorf("grants: got %+v, %v, want the approver %s", grants, err, test.want)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				ends := 0
				for _, r := range records {
					if r.Event == end || r.Event == event.Admin && r.Method == "tools/call" {
						if ends++; r.Approver != test.want || r.Channel != string(test.channel) {
							t.Errorf("%s record: approver %q by %q, want %q by %q", r.Event, r.Approver, r.Channel, test.want, test.channel)
						}
					}
				}
				if ends == 0 {
					t.Errorf("no record of the end: %+v", records)
				}
			})
		})
	}
}
