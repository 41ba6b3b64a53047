package host_test

import (
	"context"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A reference may contain only the member of its type: otherwise the policy could decide about the wrong member.
func TestReferencesHaveOneSubject(t *testing.T) {
	h := openFile(t, map[string]any{"a": map[string]any{"command": "a"}}, "{}", &host.Options{
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(mcp.NewServer("a", "1", nil)), nil
		}})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, ref := range []map[string]any{
		{"type": "ref/resource", "uri": "a://secrets/{x}", "name": "harmless"},
		{"type": "ref/prompt", "name": "harmless", "uri": "a://secrets/{x}"},
	} {
		_, err := c.Do(t.Context(), "completion/complete", map[string]any{"ref": ref, "argument": map[string]any{"name": "x", "value": ""}})
		if err == nil || !strings.Contains(err.Error(), "must not contain") {
			t.Errorf("%v: error %v, want one about the other member", ref, err)
		}
	}
}
