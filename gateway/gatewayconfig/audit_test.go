package gatewayconfig_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

func TestAuditHasDefaults(t *testing.T) {
	for text, want := range map[string]*gatewayconfig.Audit{
		`{"mcpServers": {}}`: nil,
		`{"mcpServers": {}, "patchbay": {"audit": {}}}`: {Args: gatewayconfig.AuditShape, Sync: gatewayconfig.SyncSecond,
			SegmentSize: 64 << 20, SegmentAge: config.Duration(24 * time.Hour), Keep: config.Duration(90 * 24 * time.Hour), MaxSize: 16 << 30},
		`{"mcpServers": {}, "patchbay": {"audit": {"dir": "log", "heads": "../heads", "args": "full", "sync": "record",
			"strict": true, "segment": "1MiB", "segmentAge": "1h", "keep": "48h"}}}`: {
			Dir: filepath.FromSlash("/etc/log"), Heads: filepath.FromSlash("/heads"),
			Args: gatewayconfig.AuditFull, Sync: gatewayconfig.SyncRecord,
			Strict: true, SegmentSize: 1 << 20, SegmentAge: config.Duration(time.Hour), Keep: config.Duration(48 * time.Hour),
			MaxSize: 16 << 30},
	} {
		f, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		f.Path = filepath.FromSlash("/etc/servers.json")
		s, err := gatewayconfig.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Audit; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func TestInvalidAuditIsRefused(t *testing.T) {
	checkProblem(t, `{"audit": {"args": "all"}}`, `patchbay.audit.args: got the string "all", want one of`)
	checkProblem(t, `{"audit": {"sync": "never", "strict": true}}`, `patchbay.audit.sync: got "never" with strict`)
	checkProblem(t, `{"audit": {"segment": "1KiB"}}`, `patchbay.audit.segment: got "1KiB", want at least 1MiB`)
	checkProblem(t, `{"audit": {"keep": "0s"}}`, `patchbay.audit.keep: got "0s", want a duration of more than 0`)
}
