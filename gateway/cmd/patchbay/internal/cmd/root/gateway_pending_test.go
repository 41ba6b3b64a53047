package root

import (
	"strings"
	"testing"
)

// What a caller chooses in a request that waits does nothing on the terminal of the operator, and nothing of it is
// left out without a word.
func TestPendingRequestOfAHostileCaller(t *testing.T) {
	a := newAttack(t, "", []string{"bank"}, "", `"approve": ["console"],
		"policy": {"rules": [{"name": "all", "on": ["other", "call"], "do": "ask"}]}`)
	c := gatewayClient(t, a.g, "2025-11-25", false)
	defer c.Close()
	send := func(f func() error) {
		done := make(chan error, 1)
		go func() { done <- f() }()
		id := a.waitPending().Pending[0].ID
		o := patchbay(t, "", "gateway", "pending")
		if strings.ContainsAny(o.stdout, "\x1b\r") {
			t.Errorf("pending: %q", o.stdout)
		}
		if strings.Contains(o.stdout, "Amount") && !strings.Contains(o.stdout, "--json") {
			t.Errorf("pending does not say that arguments are left out: %.300q", o.stdout)
		}
		patchbay(t, "", "gateway", "deny", id)
		<-done
	}
	send(func() error {
		_, err := c.Do(t.Context(), "x/\x1b[2J\r", map[string]any{"a": 1})
		return err
	})
	send(func() error {
		_, err := c.CallTool(t.Context(), "pay", map[string]any{"Amount": strings.Repeat("a", 5000), "To": "eve"})
		return err
	})
}
