package sandbox_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/sandbox"
)

func TestOtherSystemsRefuseASandbox(t *testing.T) {
	if runtime.GOOS == "linux" {
		t.Skip("the other tests are for Linux")
	}
	if _, err := sandbox.New(t.Context(), &config.Sandbox{}, nil); err == nil || !strings.Contains(err.Error(), "Linux") {
		t.Errorf("got %v", err)
	}
}

func TestStartErrorIsTheLastLineOfTheSandbox(t *testing.T) {
	for _, e := range []struct{ stderr, want string }{
		{"bwrap: execvp /srv/x: No such file or directory\n", "bwrap did not start the command: execvp"},
		{"warning\nprlimit: failed to execute /srv/x: Permission denied", "prlimit did not start the command: failed"},
		{"bwrap: text of the server\nending", ""},
		{"", ""},
	} {
		err := sandbox.StartError(e.stderr)
		if got := ""; err != nil {
			got = err.Error()
			if e.want == "" || !strings.Contains(got, e.want) {
				t.Errorf("%q: got %q, want %q", e.stderr, got, e.want)
			}
		} else if e.want != "" {
			t.Errorf("%q: got no error, want %q", e.stderr, e.want)
		}
	}
}
