package audit_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A record names who has approved its request, beside the channel.
func TestApproverIsRecorded(t *testing.T) {
	dir := t.TempDir()
	l := open(t, testOptions(dir))
	r := call(1)
	r.Channel, r.Approver = string(policy.ChannelConsole), "olga \"\u202e\n"
	record(t, l, r)
	closeLog(t, l)
	for _, e := range readAll(t, dir) {
		if e.ID != "call-1" {
			continue
		}
		if e.Channel != "console" || e.Approver != r.Approver ||
			!strings.Contains(string(e.Raw), `"channel":"console","approver":"olga \"`) {
			t.Errorf("got %s", e.Raw)
		}
		return
	}
	t.Error("the log has no record of the call")
}
