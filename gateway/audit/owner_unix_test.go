//go:build unix

package audit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
)

// A folder or a segment that another user owns or can write is refused, because that user could have written the log.
func TestFilesOfOtherUsersAreRefused(t *testing.T) {
	for name, change := range map[string]func(dir, segment string) error{
		"folder, written by the group": func(dir, _ string) error { return os.Chmod(dir, 0o770) },
		"folder, written by all":       func(dir, _ string) error { return os.Chmod(dir, 0o702) },
		"segment, written by the group": func(_, segment string) error {
			return os.Chmod(segment, 0o620)
		},
		"folder of another user":  func(dir, _ string) error { return os.Chown(dir, 12345, -1) },
		"segment of another user": func(_, segment string) error { return os.Chown(segment, 12345, -1) },
	} {
		if strings.Contains(name, "another user") && os.Geteuid() != 0 {
			continue // only root can give files to another user
		}
		o := testOptions(t.TempDir())
		l := open(t, o)
		record(t, l, call(1))
		closeLog(t, l)
		if err := change(o.Dir, files(t, o.Dir)[0]); err != nil {
			t.Fatal(err)
		}
		l, err := audit.Open(o)
		if err == nil {
			closeLog(t, l)
		}
		if err == nil || !strings.Contains(err.Error(), "other users") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}
