//go:build unix

package private_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
)

func TestMkdirAllRefusesDirectoriesOfOthers(t *testing.T) {
	for _, test := range []struct {
		mode  os.FileMode
		other bool
		want  string
	}{
		{0o700, false, ""}, {0o755, false, ""}, {0o775, false, "chmod go-w"}, {0o702, false, "chmod go-w"},
		{0o700, true, "owned by another user"}, {0o777, true, "owned by another user"},
	} {
		dir := filepath.Join(t.TempDir(), "a", "b")
		if err := private.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, test.mode); err != nil {
			t.Fatal(err)
		}
		if test.other {
			if os.Geteuid() != 0 {
				continue // only root can give a directory to another user
			}
			if err := os.Chown(dir, 12345, 12345); err != nil {
				t.Fatal(err)
			}
		}
		err := private.MkdirAll(dir)
		if (err == nil) != (test.want == "") || err != nil && (!errors.Is(err, private.ErrExposed) ||
			!strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir)) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
