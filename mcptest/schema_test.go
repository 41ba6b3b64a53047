package mcptest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/internal/specschema"
)

func listTools(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "hello"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
	Run(t, s, func(_ *testing.T, c *Client) { c.Call("tools/list", nil) })
}

func TestMissingSchemasAreReportedOncePerRun(t *testing.T) {
	empty := t.TempDir()
	env := []string{"PATCHBAY_SCHEMAS=", "XDG_CACHE_HOME=" + empty, "LocalAppData=" + empty, "HOME=" + empty}
	out := runFailing(t, "schemas", env...)
	if got := strings.Count(out, specschema.Command); got != 1 || !strings.Contains(out, "PASS") {
		t.Errorf("got the message %d times, want once:\n%s", got, out)
	}
	dir := filepath.Join(empty, "patchbay", "schemas")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range specschema.Files() {
		if err := os.WriteFile(filepath.Join(dir, f.Name()), []byte(`{}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out = runFailing(t, "schemas", env...)
	if !strings.Contains(out, "the SHA-256 is ") || !strings.Contains(out, specschema.Command) || !strings.Contains(out, "FAIL") {
		t.Errorf("with other files in the cache: got\n%s", out)
	}
}
